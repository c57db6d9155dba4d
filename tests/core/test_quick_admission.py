"""Quick admission: what it admits is what every check would have admitted, and it leaves the rest to them."""

import json
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, Field

from handrail.calls import ToolCall
from handrail.context import Injected
from handrail.core.admission import ParsedCall, admit, parse_call
from handrail.core.budgets import Budget
from handrail.core.plain_calls import admit_quickly
from handrail.core.policy import Decision, Policy, Rule, Verdict
from handrail.errors import Code, Failure, ToolDefinitionError
from handrail.events import CallFinished
from handrail.sync import SyncRuntime
from handrail.testing import ScriptedModel
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits, Sends, Write
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset


def look_up(city: str) -> str:
    """Look something up."""
    return city


def look_up_as(tenant: Annotated[str, Injected], city: str) -> str:
    """Look something up for somebody."""
    return f"{tenant} {city}"


def reading() -> FunctionTool:
    return FunctionTool(look_up, effect="read")


def measure(city: str, days: int = 1, share: float = 0.5) -> str:
    """Measure something."""
    return f"{city} {days} {share}"


def count(
    city: str,
    days: int = 1,
    share: Literal[1, "all", True] | None = None,
    exact: bool = False,
) -> str:
    """Count something. All of its parameters are such that what fits is what it takes."""
    return f"{city!r} {days!r} {share!r} {exact!r}"


class Named(BaseModel):
    """A city with its name."""

    name: str


def collect(
    city: list[str] | str,
    days: list[int] | dict[str, int] = 1,
    share: dict[str, list[float]] | None = None,
    exact: list[Named] | None = None,
) -> str:
    """Collect something. Its parameters are lists and mappings."""
    return f"{city!r} {days!r} {share!r} {exact!r}"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["a: b", "http://x.y", 'say "so"', "[", "\\", 3.0, 10**499, 10**500]
    )
)
VALUES = (
    SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.lists(st.fixed_dictionaries({"name": st.text()}), max_size=2)
    | st.dictionaries(st.sampled_from(["name", "a"]), SCALARS | st.lists(SCALARS))
)
WRITTEN = st.dictionaries(
    st.sampled_from(["city", "days", "share", "exact"]), VALUES
).map(json.dumps)
NEARLY_WRITTEN = st.tuples(
    WRITTEN,
    st.integers(0, 40),
    st.sampled_from(
        ['"', "}", ":", "1e999", ',"city":"b"', ',"a":1', ',"name":""', "\ud800", "[["]
    ),
)


@pytest.mark.parametrize(
    "resource", [None, "city:{city}", ["city:{city}", "day:{days}"]]
)
@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("fn", [measure, count, collect])
@settings(max_examples=200)
@given(
    text=WRITTEN
    | NEARLY_WRITTEN.map(lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :])
)
def test_what_is_admitted_quickly_is_what_every_check_would_have_admitted(
    fn, effect, resource, text
):
    tool = FunctionTool(fn, effect=effect, resource=resource)
    call = ToolCall("1", tool.name, text)
    key = "r_1/1/0" if tool.writes else ""
    admitted = admit_quickly(call, tool, Policy(), key)
    if admitted is not None:
        known = parse_call(call, Toolset([tool]), "calls")
        assert isinstance(known, ParsedCall)
        assert admitted == admit(known, Policy(), key)


ASKED = (
    '{"city": "Bern"}',
    '{"city": "Rome"}',
    '{"city": {"$call": "c0"}}',
    '{"city": "\\u0024c0$"}',
    "{",
)
"""What calls of a turn ask for that may have to wait for one another."""


class OwnPolicy(Policy):
    """Every call under a class of one's own is admitted by every check."""


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["measure", "count", "collect", "look_up"]),
            WRITTEN | st.sampled_from(ASKED),
        ),
        max_size=5,
    ),
    most=st.none() | st.integers(0, 3),
    resource=st.none() | st.sampled_from(["city:{city}", "place:{days}"]),
)
def test_a_turn_of_writes_tells_and_records_the_same_whichever_way_it_was_admitted(
    calls, most, resource
):
    told = []
    for policy in (Policy(), OwnPolicy()):
        events = []
        tools = [
            FunctionTool(measure, effect="write", resource=resource),
            FunctionTool(count, effect="write", resource="city:{city}"),
            FunctionTool(collect, effect="write"),
            FunctionTool(look_up, effect="read", resource="city:{city}"),
        ]
        runtime = SyncRuntime(
            tools,
            policy=policy,
            budget=Budget(calls=most),
            observers=[lambda event, events=events: events.append(shown(event))],
        )
        asked = [ToolCall(f"c{n}", *each) for n, each in enumerate(calls)]
        results = runtime.calls(asked, run="r_1", turn="1")
        told.append((results, events))
    assert told[0] == told[1]


def shown(event):
    """Return an event without its times."""
    if isinstance(event, CallFinished):
        return replace(event, seconds=0.0)
    return event


@pytest.mark.parametrize(
    "declared",
    [{"key": "{city}"}, {"sends": Sends(egress=True)}, {"effect": "destructive"}],
)  # fmt: skip
def test_a_write_that_is_known_by_more_than_its_place_is_left_to_every_check(declared):
    tool = FunctionTool(look_up, **{"effect": "write", **declared})
    call = ToolCall("1", "look_up", '{"city": "Bern"}')
    assert admit_quickly(call, tool, Policy(), "r_1/1/0") is None


def test_a_plain_write_is_admitted_quickly_under_the_key_of_its_place():
    tool = FunctionTool(measure, effect="write")
    call = ToolCall("1", "measure", '{"city": "Bern"}')
    admitted = admit_quickly(call, tool, Policy(), "r_1/1/0")
    assert admitted.key == "r_1/1/0"
    assert admitted.arguments == {"city": "Bern", "days": 1, "share": 0.5}
    assert admit_quickly(call, tool, Policy()) is None


def test_a_plain_call_is_admitted_quickly_with_what_it_touches():
    tool = FunctionTool(look_up, effect="write", resource="city:{city}")
    call = ToolCall("1", "look_up", '{"city": "Bern"}')
    admitted = admit_quickly(call, tool, Policy(), "r_1/1/0")
    assert [each.key for each in admitted.resources] == ["city:Bern"]
    injected = FunctionTool(
        look_up_as, effect="write", resource="{tenant}:{city}", name="look_up"
    )
    assert admit_quickly(call, injected, Policy(), "r_1/1/0") is None


@pytest.mark.parametrize("policy", [Policy(ask_from=None), OwnPolicy(ask_from=None)])
def test_a_read_of_high_risk_is_asked_about_whichever_way_it_was_admitted(policy):
    page = FunctionTool(look_up, name="page", effect="read")
    tool = FunctionTool(
        measure, effect="read", risk="high", sends=Sends(destination="city")
    )
    script = [
        ToolCall("1", "page", '{"city": "Bern"}'),
        ToolCall("2", "measure", '{"city": "evil.example"}'),
    ]
    runtime = SyncRuntime([page, tool], policy=policy)
    run = runtime.run("?", model=ScriptedModel([[call] for call in script] + ["done"]))
    assert run.status == "waiting"


def test_a_write_whose_class_makes_its_key_is_left_to_every_check():
    class Keyed(BaseTool):
        """Makes its own key."""

        effect = "write"

        def run(self, city: str) -> str:
            return city

        def resolve_key(self, arguments, otherwise):
            return f"{otherwise}:{arguments['city']}"

    call = ToolCall("1", "Keyed", '{"city": "Bern"}')
    assert admit_quickly(call, Keyed(), Policy(), "r_1/1/0") is None


class Color(Enum):
    """Colors that a tool knows."""

    RED = "red"


def from_day(day: date, city: str) -> str: ...


def of_list(cities: list[str], counts: dict[str, list[int]] | None = None) -> str: ...


def of_model(city: Named) -> str: ...


def of_models(cities: list[Named]) -> str: ...


def of_days(days: list[date], shares: dict[str, float]) -> str: ...


def within(days: Annotated[int, Field(ge=1)]) -> str: ...


def within_by_default(days: int = Field(1, ge=1)) -> str: ...


def of_changed(city: Annotated[str, AfterValidator(list)]) -> str: ...


def of_color(color: Literal[Color.RED]) -> str: ...


def of_a_list_by_default(city: str = [1]) -> str: ...


@pytest.mark.parametrize(("fn", "kept"), [
    (count, True), (from_day, False), (of_list, True), (of_model, False), (of_models, False),
    (of_days, False), (within, False), (within_by_default, False),
    (of_changed, False), (of_color, False), (of_a_list_by_default, False), (measure, False),
])  # fmt: skip
def test_a_tool_takes_what_fits_as_it_stands_only_where_pydantic_turns_nothing_into_anything(
    fn, kept
):
    assert FunctionTool(fn, effect="read").as_written is kept


def test_a_tool_that_binds_or_describes_its_arguments_in_its_own_way_is_asked_to():
    class Loud(BaseTool):
        """Says it loudly."""

        effect = "read"

        def run(self, city: str) -> str:
            return city

        @property
        def bind(self):
            return lambda arguments: {"city": arguments["city"].upper()}

    described = FunctionTool(
        count, effect="read", parameters={"type": "object", "properties": {"city": {}}}
    )
    assert not described.as_written
    admitted = admit_quickly(
        ToolCall("1", "Loud", '{"city": "Paris"}'), Loud(), Policy()
    )
    assert admitted.bound == {"city": "PARIS"}


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), KeyError("canary")])
def test_a_validator_that_leaves_the_program_leaves_its_call_to_every_check(error):
    def leave(_):
        raise error

    def leaving(city: Annotated[str, AfterValidator(leave)]) -> str:
        """Leave."""
        return city

    tool = FunctionTool(leaving, effect="read")
    call = ToolCall("1", "leaving", '{"city": "Paris"}')
    assert admit_quickly(call, tool, Policy()) is None
    assert (
        admit(parse_call(call, Toolset([tool]), "calls"), Policy()).code
        == Code.INTERNAL_ERROR
    )


@pytest.mark.parametrize(
    ("city", "code"), [("Paris", Code.NOT_PERMITTED), ("Rome", None)]
)
def test_a_policy_of_one_s_own_class_is_asked_about_every_call_and_once(city, code):
    asked = []

    class NoParis(Policy):
        def judge(self, tool, arguments):
            asked.append(arguments["city"])
            if arguments["city"] == "Paris":
                return Verdict(Decision.DENY, "low", "not Paris")
            return super().judge(tool, arguments)

    result = SyncRuntime([reading()], policy=NoParis()).call("look_up", {"city": city})
    assert (result.failure.code if result.failure else None, asked) == (code, [city])


@pytest.mark.parametrize("condition", ["path == '/etc/passwd'", "days > 100"])
def test_a_rule_sees_what_the_tool_gets_also_where_calls_are_admit_quickly(condition):
    def look_into(path: Path, days: int = 1000) -> str:
        """Look into a file."""
        return f"{path} {days}"

    tool, call = (
        FunctionTool(look_into, effect="read"),
        ToolCall("1", "look_into", '{"path": "/etc//passwd"}'),
    )
    policy = Policy(
        rules=[Rule("look_into", "deny", when=condition), Rule("*", "allow")]
    )
    assert admit_quickly(call, tool, policy) is None
    allowing = Policy(rules=[Rule("*", "allow")])
    assert admit_quickly(call, tool, allowing) == admit(
        parse_call(call, Toolset([tool]), "calls"), allowing
    )


@pytest.mark.parametrize(("setting", "value"), [
    ("approve", True),
    ("check", lambda city: "not today"),
    ("rate", "1/h"),
    ("isolation", "isolated"),
    ("ends_run", True),
    ("effect", "destructive"),
    ("risk", "high"),
    ("permission", "admin"),
])  # fmt: skip
def test_a_tool_does_not_change_once_a_set_has_it_and_another_has_what_it_is_told(
    setting, value
):
    tool, call = reading(), ToolCall("1", "look_up", '{"city": "Paris"}')
    Toolset([tool])
    assert admit_quickly(call, tool, Policy()) is not None
    with pytest.raises(
        ToolDefinitionError,
        match=rf"`{setting}` holds .* `tool.replace\({setting}=...\)`",
    ):
        setattr(tool, setting, value)
    with pytest.raises(ToolDefinitionError, match=f"`{setting}` holds"):
        delattr(tool, setting)
    assert admit_quickly(call, tool, Policy()) is not None
    assert admit_quickly(call, tool.replace(**{setting: value}), Policy()) is None


class Particular(BaseTool):
    """Looks something up, but not in Paris."""

    effect = "read"

    def run(self, city: str) -> str:
        return city


class ByRule(Particular):
    """Has a rule by inheritance."""

    def check_rule(self, bound):
        return (
            Failure(Code.RULE_VIOLATED, "not Paris")
            if bound["city"] == "Paris"
            else None
        )


class ByArguments(Particular):
    """Has a check by inheritance."""

    def check_arguments(self, parsed):
        if parsed["city"] == "Paris":
            return Failure(Code.INVALID_ARGUMENTS, "not Paris")
        return super().check_arguments(parsed)


@pytest.mark.parametrize("tool", [ByRule(), ByArguments()])
def test_a_tool_class_that_checks_in_its_own_way_is_asked_about_every_call(tool):
    assert (
        admit_quickly(ToolCall("1", tool.name, '{"city": "Paris"}'), tool, Policy())
        is None
    )
    assert (
        admit_quickly(
            ToolCall("1", "Particular", '{"city": "Paris"}'), Particular(), Policy()
        )
        is not None
    )


def test_a_plain_call_is_admit_quickly():
    tool = FunctionTool(measure, effect="read")
    admitted = admit_quickly(
        ToolCall("1", "measure", '{"city": "巴黎", "days": 2, "share": 0.25}'),
        tool,
        Policy(),
    )
    assert admitted is not None
    assert admitted.bound == {"city": "巴黎", "days": 2, "share": 0.25}


@pytest.mark.parametrize(
    ("declared", "policy"),
    [
        ({"effect": "write"}, Policy()),
        ({"approve": "days > 3"}, Policy()),
        ({"check": lambda **_: "no"}, Policy()),
        ({"limits": Limits(rate="1/h")}, Policy()),
        ({"limits": Limits(max_concurrency=1)}, Policy()),
        ({"isolation": "process"}, Policy()),
        ({"limits": Limits(ends_run=True)}, Policy()),
        ({"write": Write(required_approvals=2)}, Policy()),
        ({"permission": "admin"}, Policy()),
        ({"risk": "high"}, Policy()),
        ({}, Policy(rules=[Rule("measure", "deny")])),
    ],
)
def test_a_call_in_which_anybody_else_has_a_say_is_not_admit_quickly(declared, policy):
    tool = FunctionTool(measure, **{"effect": "read", **declared})
    assert (
        admit_quickly(ToolCall("1", "measure", '{"city": "Paris"}'), tool, policy)
        is None
    )
