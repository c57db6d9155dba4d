"""A tool: what it declares, what follows from it, and what the model never sees."""

import operator
import os
import pickle
import re
import signal
import threading
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, get_type_hints

import pytest
from msgspec.structs import asdict
from pydantic import BaseModel, Field

import handrail as hr
from handrail.calls import ToolCall
from handrail.context import Injected
from handrail.effects import Resource
from handrail.errors import Code, Failure, NoEffect, ToolDefinitionError, ToolError
from handrail.runtime import Runtime
from handrail.sync import SyncRuntime
from handrail.tools.function_tool import FunctionTool, tool
from handrail.tools.settings import GROUP_OF
from handrail.tools.tool import BaseTool, Then, ToolSettings
from handrail.tools.toolset import Toolset
from tests.support.drivers import BOUND_S


def get_weather(city: str, days: int = 1) -> dict:
    """Get the weather of a city.

    Args:
        city: Its name.
    """
    return {"city": city, "days": days}


def test_what_type_checkers_take_for_the_settings_are_the_attributes_of_a_tool():
    attributes = get_type_hints(BaseTool)
    assert get_type_hints(ToolSettings) == {
        name: attributes[name] for name in BaseTool._DECLARABLE
    }


def test_a_function_is_made_a_tool_with_settings_without_being_decorated():
    made = tool(get_weather, effect="read", timeout_s=5)
    assert (made.fn, made.effect, made.timeout_s) == (get_weather, "read", 5)


# ---------------------------------------------------------------------- groups


class Polite(hr.BaseTool):
    effect = "read"
    limits = hr.Limits(rate="5/s", max_attempts=1)

    def run(self, city: str) -> str:
        return city


class Slow(Polite):
    limits = hr.Limits(rate="1/s")


def test_a_group_changes_what_it_names_and_leaves_the_rest():
    made = Slow()
    made.limits = hr.Limits(breaker=0)
    other = made.replace(limits=hr.Limits(max_attempts=2), sends={"trust": "trusted"})
    assert other.limits == hr.Limits(rate="1/s", max_attempts=2, breaker=0)
    assert (made.limits.max_attempts, Polite.limits.rate) == (1, "5/s")
    assert (other.sends.trust, other.sends.egress) == ("trusted", None)


def test_a_group_is_frozen_and_copies_as_it_is():
    limits = hr.Limits(rate="1/s")
    with pytest.raises(AttributeError, match="frozen"):
        limits.rate = "2/s"
    assert pickle.loads(pickle.dumps(limits)) == deepcopy(limits) == limits
    assert repr(limits) == "Limits(rate='1/s')"


def test_a_setting_of_a_group_is_no_attribute_of_a_tool():
    with pytest.raises(ToolDefinitionError, match=r"hr\.Write\(required_approvals="):

        class Careless(Polite):
            required_approvals = 2

    with pytest.raises(ToolDefinitionError, match=r"hr\.Limits\(poll="):
        Slow().poll = True


# ---------------------------------------------------------------------- from a function (A1, A4)


def told(city: str) -> str:
    """Tell the weather."""
    return city


class Silent(hr.BaseTool):
    name, effect = "silent", "read"

    def run(self, city: str) -> str:
        return city


class Spoken(Silent):
    """Tell the weather."""


class Inheriting(Spoken):
    pass


@pytest.mark.parametrize(("made", "description"), [
    (hr.FunctionTool(lambda: "", name="silent"), ""),
    (hr.FunctionTool(partial(lambda city: city, "Bern"), name="silent", parameters={"type": "object"}), ""),
    (hr.FunctionTool(partial(partial(told), "Bern"), name="told"), "Tell the weather."),
    (Silent(), ""),
    (Spoken(), "Tell the weather."),
    (Inheriting(), "Tell the weather."),
])  # fmt: skip
def test_a_tool_is_described_by_what_its_author_wrote_or_by_nothing(made, description):
    assert made.description == description


def test_a_function_is_described_by_its_hints_and_its_docstring():
    made = tool(get_weather)
    assert (made.name, made.description) == (
        "get_weather",
        "Get the weather of a city.",
    )
    assert made.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name."},
            "days": {"type": "integer", "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("made", [
    tool(get_weather),
    tool(effect="read")(get_weather),
    FunctionTool(get_weather),
])  # fmt: skip
def test_a_tool_can_still_be_called_as_the_function_it_is(made):
    assert made("Bern", days=2) == {"city": "Bern", "days": 2}


def test_name_and_description_can_be_overridden():
    made = tool(name="weather.get", description="Weather.")(get_weather)
    assert (made.name, made.description, made.summary) == (
        "weather.get",
        "Weather.",
        "Weather.",
    )


def test_a_schema_can_stand_in_place_of_the_hints():
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string"}},
        "required": ["q"],
    }
    made = FunctionTool(
        lambda **said: said, name="search", description="Search.", parameters=schema
    )
    assert made.parameters["properties"] == {"q": {"type": "string"}}
    assert made.bind({"q": "x"}) == {"q": "x"}


def test_a_parameter_without_a_type_is_named_when_the_tool_is_declared():
    def unfinished(city):
        """Do something."""

    with pytest.raises(
        ToolDefinitionError, match=r"'unfinished'.*`city` has no type hint"
    ):
        tool(unfinished)


def test_a_model_as_the_one_parameter_is_the_input():
    class Order(BaseModel):
        id: int
        items: list[Annotated[str, Field(min_length=1)]] = []

    def ship(order: Order) -> str:
        """Ship an order."""
        return f"{order.id}: {order.items}"

    made = tool(ship)
    assert set(made.parameters["properties"]) == {"id", "items"}
    assert (
        made.bind_call(made.bind({"id": 7, "items": ["x"]}), None, {})() == "7: ['x']"
    )
    refusal = made.check_arguments({"id": 7, "items": ["x", ""]})
    assert isinstance(refusal, Failure)
    assert "items[1]" in refusal.message


# ---------------------------------------------------------------------- what the model never sees (A6)


class Deps:
    secret = "canary"


def charge(
    context: hr.Context[Deps],
    amount: float,
    tenant: Annotated[str, hr.Injected],
    user: Annotated[int | None, hr.Injected()],
) -> str:
    """Charge money.

    Args:
        tenant: Never told.
    """
    return f"{amount} {tenant} {user} {context}"


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-compatible"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_hidden_parameter_is_in_no_definition(dialect, strict):
    told = str(Toolset([charge]).definitions(dialect, strict=strict))
    assert "amount" in told
    assert not any(
        hidden in told for hidden in ("context", "tenant", "user", "Never told")
    )


@pytest.mark.parametrize("name", ["context", "tenant", "user"])
def test_a_model_that_sends_a_hidden_name_is_refused(name):
    refusal = tool(charge).check_arguments({"amount": 1, name: "mine"})
    assert isinstance(refusal, Failure)
    assert (refusal.code, f"`{name}`" in refusal.message) == (
        Code.INVALID_ARGUMENTS,
        True,
    )


def test_the_caller_fills_what_is_hidden():
    made = tool(charge)
    injected = {"tenant": "acme", "user": 7}
    assert (
        made.bind_call(made.bind({"amount": 1}), "the context", injected)()
        == "1.0 acme 7 the context"
    )


def test_a_hidden_parameter_may_be_written_as_text():
    namespace = {"hr": hr, "Annotated": Annotated}
    exec(
        "def later(context: 'hr.Context', amount: 'float') -> str:\n    'Do it.'",
        namespace,
    )
    assert list(tool(namespace["later"]).parameters["properties"]) == ["amount"]


# ---------------------------------------------------------------------- with state (A4)


class Documents(BaseTool):
    name = "search_docs"
    effect = "read"

    def __init__(self):
        super().__init__()
        self.index = None

    def open(self):
        self.index = {"vpn": "Use the VPN."}

    def run(self, query: str) -> str:
        """Search the handbook."""
        return self.index[query]


def test_a_tool_with_state_is_described_by_its_run():
    made = Documents()
    assert (made.name, made.description, made.opens) == (
        "search_docs",
        "Search the handbook.",
        True,
    )
    assert list(made.parameters["properties"]) == ["query"]


def test_a_tool_with_state_keeps_it_between_calls():
    made = Documents()
    made.open()
    assert [made.bind_call({"query": "vpn"}, None, {})() for _ in range(2)] == [
        "Use the VPN."
    ] * 2


def test_a_class_without_a_name_is_called_by_its_own():
    class FindOrder(BaseTool):
        def run(self, order: int) -> str:
            """Find an order."""

    assert FindOrder().name == "FindOrder"


def test_a_class_without_run_is_a_definition_error():
    class Nothing(BaseTool):
        pass

    with pytest.raises(ToolDefinitionError, match="no method `run`"):
        Nothing()


def test_a_tool_that_overrides_nothing_needs_no_opening():
    assert not tool(get_weather).opens


# ---------------------------------------------------------------------- what follows from the declaration


@pytest.mark.parametrize(("effect", "writes", "needs", "weighs"), [
    ("read", False, "read", "low"),
    ("write", True, "write", "medium"),
    ("destructive", True, "write", "high"),
    # undeclared counts as a write wherever safety matters
    (None, True, "write", "medium"),
])  # fmt: skip
def test_permission_and_risk_follow_from_the_effect(effect, writes, needs, weighs):
    made = FunctionTool(get_weather, effect=effect)
    assert (made.writes, made.required_permission, made.effective_risk) == (
        writes,
        needs,
        weighs,
    )


def test_permission_and_risk_can_be_declared():
    made = FunctionTool(get_weather, effect="read", permission="admin", risk="high")
    assert (made.required_permission, made.effective_risk) == ("admin", "high")


@pytest.mark.parametrize(("declared", "replay_class"), [
    ({}, "none"),
    # a key names the act; it does not say that the far side honours it
    ({"key": "w:{city}"}, "none"),
    ({"replay": "key"}, "key"),
    ({"verify": get_weather}, "verify"),
])  # fmt: skip
def test_the_replay_class_is_what_the_author_promised(declared, replay_class):
    assert (
        FunctionTool(get_weather, effect="write", **declared).replay_class
        == replay_class
    )


@pytest.mark.parametrize(("declared", "complaint"), [
    ({"effect": "delete"}, "`effect` is one of read, write, destructive, not 'delete'"),
    ({"permission": "root"}, "`permission` is one of read, write, admin, not 'root'"),
    ({"risk": "extreme"}, "not 'extreme'"),
    ({"isolation": "docker"}, "not 'docker'"),
    ({"replay": "verify"}, "`replay` is one of key, not 'verify'"),
    ({"effect": "read", "key": "w:{city}"}, "is a read"),
    ({"effect": "read", "verify": get_weather}, "is a read"),
    ({"timeout_s": 0}, "above 0"),
    ({"timeout_s": -1}, "above 0"),
    ({"limits": hr.Limits(attempt_timeout_s=-1)}, "above 0"),
    ({"timeout_s": "5"}, "`timeout_s` is a number of seconds above 0, not '5'"),
    ({"timeout_s": float("nan")}, "above 0, not nan"),
    ({"timeout_s": None}, "above 0, not None"),
    ({"limits": hr.Limits(max_attempts=0)}, "at least 1"),
    ({"limits": hr.Limits(max_attempts=2.5)}, "`max_attempts` is a whole number, at least 1, not 2.5"),
    ({"limits": hr.Limits(max_attempts=True)}, "at least 1, not True"),
    ({"limits": hr.Limits(result_bytes=0)}, "`result_bytes` is a whole number"),
    ({"limits": hr.Limits(breaker=-1)}, "`breaker` is a whole number, at least 0"),
    ({"limits": hr.Limits(max_concurrency=0)}, "at least 1"),
    ({"write": hr.Write(repeat_window_s=-1)}, "at least 0"),
    ({"blocking": "no"}, "`blocking` is True or False, not 'no'"),
    ({"write": hr.Write(repeatable=1)}, "True or False, not 1"),
    ({"check": "city != 'Paris'"}, "`check` is a function"),
    ({"verify": 5}, "`verify` is a function"),
    ({"write": hr.Write(compensate="undo")}, "`compensate` is a function"),
    ({"key": 5}, "`key` is a template or a function, not 5"),
    ({"resource": 5}, "`resource` is text or a list of texts, not 5"),
    ({"limits": hr.Limits(after=["a", 5])}, "`after` is text or a list of texts"),
    ({"approve": 100}, "a condition or a function, not 100"),
    ({"tags": "admin"}, "`tags` is a list of texts, not 'admin'"),
    ({"tags": (each for each in ["admin"])}, "`tags` is a list of texts, not <generator"),
    # empty once looked at
    ({"tags": iter(["admin"])}, "`tags` is a list of texts, not <list_iterator"),
    ({"effect": "write", "resource": iter(["order"])}, "`resource` is text or a list of texts, not <list_iterator"),
    ({"limits": hr.Limits(rate=5)}, "`rate` is text, not 5"),
    ({"name": 5}, "`name` is text, not 5"),
    ({"isolation": None}, "`isolation` is one of none, process"),
    ({"write": hr.Write(on_doubt=None)}, "`on_doubt` is one of tell, ask, not None"),
    ({"then": get_weather}, "`then` is a `Then`, not <function"),
    ({"limits": 5}, "`limits` is an `hr.Limits(...)`, not 5"),
    ({"limits": hr.Write()}, "`limits` is an `hr.Limits(...)`, not Write()"),
    ({"key": "w:{city"}, "not a template"),
    ({"resource": ["w:{city}", "{"]}, "not a template"),
    ({"approve": "amount >"}, "not a condition"),
    ({"timeout": 5}, "declares `timeout`, which no tool has. Did you mean `timeout_s`?"),
    ({"max_attempts": 2}, "which no tool has. It belongs to `limits=hr.Limits(max_attempts=...)`."),
    ({"max_atempts": 2}, "Did you mean `max_attempts`? It belongs to `limits=hr.Limits(max_attempts=...)`."),
    ({"limits": {"max_atempts": 2}}, "`hr.Limits` has no `max_atempts`. Did you mean `max_attempts`?"),
    ({"limits": {"on_doubt": "ask"}}, "It belongs to `write=hr.Write(on_doubt=...)`."),
])  # fmt: skip
def test_a_declaration_that_cannot_be_meant_is_refused_when_it_is_made(
    declared, complaint
):
    for described in (
        {},
        {"parameters": {"type": "object", "properties": {"city": {}}}},
    ):
        with pytest.raises(ToolDefinitionError) as told:
            FunctionTool(get_weather, **described, **declared)
        assert complaint in str(told.value)


def in_its_group(setting, value):
    group = GROUP_OF.get(setting)
    return {group: {setting: value}} if group else {setting: value}


OF_WRITES = {
    "key": "w:{city}",
    "replay": "key",
    "verify": lambda arguments, context: None,
    "one_request": True,
    "compensate": lambda city, result: None,
    "on_repeat": "return_previous",
    "on_doubt": "ask",
    "repeat_window_s": 60,
}
NOT_BOTH = [
    ({"replay": "key"}, ["verify"]),
    ({"deferred": True}, ["replay", "verify", "on_doubt"]),
    ({"write": hr.Write(repeatable=True)}, ["key", "on_repeat", "repeat_window_s"]),
]


@pytest.mark.parametrize(("declared", "setting"), [
    *(({"effect": "read"}, setting) for setting in OF_WRITES),
    *((declared, setting) for declared, others in NOT_BOTH for setting in others),
])  # fmt: skip
def test_a_setting_that_would_never_be_looked_at_is_refused_with_its_name(
    declared, setting
):
    with pytest.raises(ToolDefinitionError, match=f"`{setting}`"):
        tool(get_weather, **{"effect": "write", **declared}).replace(
            **in_its_group(setting, OF_WRITES[setting])
        )


def test_the_time_for_which_a_key_is_known_needs_a_service_that_knows_keys():
    with pytest.raises(ToolDefinitionError, match='add replay="key"'):
        FunctionTool(
            get_weather, effect="write", key="w:{city}", write=hr.Write(key_ttl_s=60)
        )
    assert FunctionTool(
        get_weather, effect="write", replay="key", write=hr.Write(key_ttl_s=60)
    )


def test_approval_that_is_left_out_is_asked_for_where_several_must_agree():
    made = FunctionTool(get_weather, write=hr.Write(required_approvals=2))
    assert made.call_rules.needs_approval({"city": "Oslo"}) is True


def test_nothing_that_followed_from_what_a_tool_was_follows_from_another():
    tool = FunctionTool(
        get_weather, effect="read", resource="city:{city}", limits=hr.Limits(rate="5/s")
    )
    was = (
        tool.writes,
        tool.effective_risk,
        tool.required_permission,
        tool.rate_limit,
        tool.resolve_resources({"city": "Oslo"}),
    )
    other = tool.replace(
        effect="destructive",
        limits=hr.Limits(rate=None),
        resource="town:{city}",
        key="{city}",
    )
    now = (
        other.writes,
        other.effective_risk,
        other.required_permission,
        other.rate_limit,
        other.resolve_resources({"city": "Oslo"}),
    )
    assert not any(map(operator.eq, was, now))
    assert now[:4] == (True, "high", "write", None)
    assert other.resolve_key({"city": "Oslo"}, "") == "Oslo"
    assert (tool.writes, tool.pin == other.pin) == (False, False)


@pytest.mark.parametrize(("setting", "value"), [
    ("effect", "destrictive"), ("risk", 3), ("required_approvals", 0), ("key", "{city"), ("efect", "read"),
    ("run", print),
])  # fmt: skip
def test_another_tool_is_checked_like_every_one(setting, value):
    with pytest.raises(
        ToolDefinitionError, match=setting if setting != "key" else "a read|template"
    ):
        FunctionTool(get_weather, effect="read").replace(**{setting: value})


@pytest.mark.parametrize(("setting", "value"), [
    ("resource", "city:{town}"), ("rate_key", "{town}"), ("approve", "town == 'Oslo'"),
    ("then", Then(FunctionTool(get_weather, effect="read"), {"city": "{town}"})),
])  # fmt: skip
def test_what_a_tool_is_told_later_looks_at_parameters_that_there_are(setting, value):
    tool, schema = (
        FunctionTool(get_weather, effect="read"),
        {"type": "object", "properties": {"city": {"type": "string"}}},
    )
    assert "city" in tool.parameters["properties"]
    for each in (tool, FunctionTool(get_weather, effect="read", parameters=schema)):
        with pytest.raises(ToolDefinitionError, match=f"`{setting}` looks at `town`"):
            each.replace(**in_its_group(setting, value))
        for name, given in in_its_group(setting, value).items():
            setattr(each, name, given)
        with pytest.raises(ToolDefinitionError, match=f"`{setting}` looks at `town`"):
            Toolset([each])


def test_a_tool_that_was_called_is_copied_and_pickled_like_any_other():
    tool = FunctionTool(get_weather, effect="read")
    assert tool.check_arguments({"city": 7})
    for other in (deepcopy(tool), pickle.loads(pickle.dumps(tool.checker))):
        checked = (
            other.check_arguments({"city": 7})
            if isinstance(other, FunctionTool)
            else other.check({"city": 7})
        )
        assert checked == tool.check_arguments({"city": 7})


def test_a_frozen_class_is_a_tool_too():
    @dataclass(frozen=True)
    class Search(BaseTool):
        """Search."""

        effect = "read"
        index: str = "main"

        def run(self, city: str) -> str:
            return self.index

    [tool] = Toolset([Search()])
    assert (tool.pin == Search().pin, tool.run("Oslo")) == (True, "main")


def test_a_name_that_every_tool_has_is_told_apart_from_what_it_declares():
    class Documents(BaseTool):
        """Search documents."""

        def run(self, city: str) -> str:
            return city

    [tool] = Toolset([Documents()])
    with pytest.raises(ToolDefinitionError, match="itself uses the name `docs`"):
        tool.docs = {}


def test_a_tool_that_no_set_has_yet_is_what_it_was_told_last():
    tool = FunctionTool(get_weather, effect="read")
    assert not tool.writes
    tool.effect, tool.write = "write", hr.Write(required_approvals=2)
    [held] = Toolset([tool])
    assert (held.writes, held.approve) == (True, True)
    changed = FunctionTool(get_weather, effect="read")
    changed.risk = "much"
    with pytest.raises(ToolDefinitionError, match="not 'much'"):
        Toolset([changed])


def test_what_a_class_keeps_in_its_instances_is_its_own():
    class Counting(BaseTool):
        """Counts its calls."""

        effect = "read"

        def __init__(self):
            super().__init__()
            self.calls, self.timeout_s = 0, 5

        def run(self, city: str) -> int:
            self.calls += 1
            return self.calls

    [tool] = Toolset([Counting()])
    assert (tool.run("Oslo"), tool.run("Oslo"), tool.timeout_s) == (1, 2, 5)


def test_a_class_that_uses_a_name_of_handrails_is_told_so_when_its_tool_is_made():
    for name in ["docs", "label", "signature", "bind", "parameters", "_settings"]:

        class Search(BaseTool):
            """Search."""

            effect = "read"

            def __init__(self, name: str) -> None:
                super().__init__()
                setattr(self, name, ["a"])

            def run(self, words: str) -> str:
                """Search."""

        with pytest.raises(ToolDefinitionError, match=f"'Search': .* name `{name}`"):
            Search(name)


@pytest.mark.parametrize(
    "body",
    [
        {"label": ["a"]},
        {"pin": lambda self: 1},
        {"replace": lambda self, old, new: old},
        {"__annotations__": {"docs": list}},
        {"_page": 3},
    ],
)
def test_so_is_one_whose_body_or_mixin_does(body):
    run = {"run": lambda self, words: words}
    with pytest.raises(ToolDefinitionError, match="keep yours under another name"):
        type("Search", (BaseTool,), {**run, **body})
    mixin = type("Mixin", (), body)
    with pytest.raises(ToolDefinitionError, match="keep yours under another name"):
        type("Search", (mixin, BaseTool), run)


def test_a_class_may_decide_itself_what_a_tool_is_asked():
    class Search(BaseTool):
        effect = "read"

        def check_rule(self, bound):
            return super().check_rule(bound)

        @property
        def pin(self):
            return "mine"

        def run(self, words: str) -> str:
            """Search."""

    assert Search().pin == "mine"


class Bare(BaseTool):
    """Has an `__init__` of its own, and forgets the one above it."""

    effect = "read"

    def __init__(self, **told):
        vars(self).update(told)

    def run(self, city: str) -> str: ...


def test_a_tool_whose_class_forgets_to_settle_is_settled_by_its_set():
    bare = Bare()
    assert not bare.writes
    bare.effect = "write"
    Toolset([bare])
    assert bare.writes
    with pytest.raises(ToolDefinitionError, match="not 'reed'"):
        Toolset([Bare(effect="reed")])
    [tool] = Toolset([Bare(write=hr.Write(required_approvals=2))])
    assert tool.approve


@pytest.mark.parametrize(
    "declared",
    [
        {"effect": "read"},
        {"effect": "write", "resource": "city:{city}", "replay": "key"},
        {"effect": "read", "risk": "high", "approve": True, "timeout_s": 3.0},
        {
            "effect": "destructive",
            "isolation": "process",
            "limits": hr.Limits(result_bytes=900),
        },
    ],
)
def test_what_a_call_reads_of_its_tool_is_what_the_tool_says(declared):
    def look_up(city: str) -> str:
        """Look something up."""
        return city

    tool = hr.FunctionTool(look_up, **declared)
    [tool] = Toolset([tool])
    traits = asdict(tool.call_traits)
    assert traits.pop("has_resource") is bool(tool.resource)
    assert traits.pop("may_need_approval") is bool(tool.approve)
    assert traits.pop("is_rated") is (tool.rate_limit is not None)
    assert traits.pop("injects") is bool(tool.injected_parameters)
    assert traits.pop("is_isolated") is (tool.isolation != "none")
    settings = {**tool.write.values(), **tool.limits.values()}
    assert traits == {
        name: settings[name] if name in settings else getattr(tool, name)
        for name in traits
    }


def test_a_class_declares_values_and_works_nothing_out():
    with pytest.raises(
        ToolDefinitionError, match="Tool 'Either': `effect` is a property"
    ):

        class Either(BaseTool):
            """Reads, or writes."""

            @property
            def effect(self): ...

            def run(self, city: str) -> str: ...


class Hasty:
    timeout_s = -1


class Mixed(Hasty, BaseTool):
    def run(self, city: str) -> str:
        """Say a city."""
        return city


class Inherited(Mixed):
    name = "inherited"


@pytest.mark.parametrize("kind", [Mixed, Inherited])
def test_what_a_class_inherits_from_a_mixin_is_checked(kind):
    with pytest.raises(ToolDefinitionError, match="`timeout_s` is a number of seconds"):
        kind()


@pytest.mark.parametrize(("declared", "setting"), [
    ({"resource": "w:{town}"}, "resource"),                 # would never lock anything
    ({"key": "w:{city}:{town}", "effect": "write"}, "key"),
    ({"approve": "day > 3"}, "approve"),                    # would always ask
])  # fmt: skip
def test_a_name_that_is_no_parameter_is_found_when_the_tool_is_described(
    declared, setting
):
    with pytest.raises(ToolDefinitionError, match=f"`{setting}` looks at"):
        Toolset([FunctionTool(get_weather, **declared)]).definitions()


@pytest.mark.parametrize("runtime", [Runtime, SyncRuntime])
@pytest.mark.parametrize(("declared", "setting"), [
    ({"resource": "w:{town}"}, "resource"),
    ({"key": "w:{town}", "effect": "write"}, "key"),
    ({"approve": "day > 3"}, "approve"),
    ({"limits": hr.Limits(rate="5/s", rate_key="{town}")}, "rate_key"),
    ({"then": Then(FunctionTool(get_weather), {"city": "{town}"})}, "then"),
])  # fmt: skip
def test_a_name_that_is_no_parameter_is_found_when_the_runtime_is_made(
    runtime, declared, setting
):
    with pytest.raises(
        ToolDefinitionError, match=f"Tool 'get_weather': `{setting}` looks at"
    ):
        runtime([FunctionTool(get_weather, **declared)])


def test_so_is_one_of_a_step_behind_a_tool():
    step = FunctionTool(get_weather, name="step", resource="w:{town}")
    with pytest.raises(
        ToolDefinitionError, match="Tool 'step': `resource` looks at `town`"
    ):
        SyncRuntime([FunctionTool(get_weather, then=Then(step, {"city": "{city}"}))])


def test_a_runtime_describes_no_tool_whose_names_are_right():
    tools = [
        FunctionTool(get_weather),
        FunctionTool(get_weather, name="keyed", effect="write", key="w:{city}"),
    ]
    SyncRuntime(tools)
    assert not any("parameters" in vars(tool) for tool in tools)


def test_a_runtime_takes_a_name_that_only_the_whole_description_knows():
    class Place(BaseModel):
        city: str

    def look(place: Place) -> str:
        """Look."""
        return place.city

    def find(place: Annotated[str, Field(alias="city")]) -> str:
        """Find."""
        return place

    SyncRuntime(
        [
            FunctionTool(look, resource="w:{city}"),
            FunctionTool(find, resource="w:{city}"),
        ]
    )


FORMS = "`{0}` is called as `{0}({1})`, and the function given cannot be: "


@pytest.mark.parametrize(("setting", "function", "form"), [
    ("verify", lambda arguments: None, "arguments, context"),
    ("verify", lambda city, days, result: None, "arguments, context"),
    # written as `verify` is
    ("compensate", lambda arguments, context: None, "city=…, days=…, result=…"),
    ("compensate", lambda city, days: None, "city=…, days=…, result=…"),
    ("check", lambda arguments: None, "city=…, days=…"),
    ("approve", lambda context, city, days: True, "city=…, days=…"),
    ("key", lambda city: city, "city=…, days=…"),
    ("then", lambda city, days: {}, "city=…, days=…, result=…"),
])  # fmt: skip
def test_a_function_that_cannot_be_called_as_it_will_be_is_refused_with_the_form_that_it_needs(
    setting, function, form
):
    given = Then(FunctionTool(get_weather), function) if setting == "then" else function
    with pytest.raises(
        ToolDefinitionError, match=re.escape(FORMS.format(setting, form))
    ):
        FunctionTool(get_weather, effect="write", **in_its_group(setting, given))


@pytest.mark.parametrize(("setting", "function"), [
    ("verify", lambda arguments, context: None),
    ("verify", lambda *given: None),
    ("compensate", lambda city, days, result: None),
    ("compensate", lambda result, **arguments: None),
    ("check", lambda city, days=1: None),
    ("approve", lambda **arguments: True),
    ("key", lambda city, **more: city),
    ("check", max),  # built in, and says nothing of what it takes
])  # fmt: skip
def test_a_function_that_takes_what_it_will_be_given_is_taken(setting, function):
    assert (
        FunctionTool(
            get_weather, effect="write", **in_its_group(setting, function)
        ).effect
        == "write"
    )


def test_a_function_of_a_tool_by_schema_takes_its_properties_where_these_are_all_there_are():
    closed = {
        "type": "object",
        "properties": {"city": {}},
        "additionalProperties": False,
    }
    with pytest.raises(
        ToolDefinitionError, match=re.escape(FORMS.format("key", "city=…"))
    ):
        FunctionTool(
            get_weather, parameters=closed, effect="write", key=lambda town: town
        )
    FunctionTool(
        get_weather,
        parameters={"type": "object"},
        effect="write",
        key=lambda town: town,
    )


def test_a_tool_by_schema_that_declares_no_effect_weighs_as_what_nobody_here_has_written():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    made = FunctionTool(get_weather, parameters=schema)
    assert (made.effective_risk, made.replace(risk="low").effective_risk) == (
        "high",
        "low",
    )
    assert (
        made.replace(effect="write").effective_risk,
        made.replace(effect="read").effective_risk,
    ) == (
        "medium",
        "low",
    )
    assert FunctionTool(get_weather).effective_risk == "medium"
    described = FunctionTool(get_weather)
    assert (described.parameters["type"], described.effective_risk) == (
        "object",
        "medium",
    )


def test_a_function_gets_the_injected_values_that_it_names_and_never_the_context():
    def pay(order: str, tenant: Annotated[str, Injected], context: hr.Context) -> None:
        """Pay."""

    assert FunctionTool(pay, effect="write", check=lambda order: None)
    assert FunctionTool(pay, effect="write", check=lambda order, tenant: None)
    with pytest.raises(ToolDefinitionError, match="order=…"):
        FunctionTool(pay, effect="write", check=lambda order, context: None)


def test_where_a_hint_names_what_comes_later_a_function_is_looked_at_when_the_tool_is_described():
    def look(place: "Later") -> str:  # noqa: F821  # defined below its use, as in a module
        """Look."""
        return str(place)

    tool = FunctionTool(look, effect="write", check=lambda town: None)
    look.__globals__["Later"] = str
    try:
        with pytest.raises(
            ToolDefinitionError, match=re.escape(FORMS.format("check", "place=…"))
        ):
            Toolset([tool]).definitions()
    finally:
        del look.__globals__["Later"]


@pytest.mark.parametrize("setting", ["check", "approve", "key"])
def test_a_function_that_decides_before_a_call_does_not_wait(setting):
    async def waits(city, days):
        """Its answer would be a coroutine: a yes, a key that is another each time."""

    with pytest.raises(
        ToolDefinitionError, match=f"`{setting}` must be a plain function"
    ):
        FunctionTool(get_weather, effect="write", **{setting: waits})


def test_so_is_one_of_a_tool_without_parameters_which_no_call_could_give():
    with pytest.raises(
        ToolDefinitionError,
        match="`key` looks at `city`, which is none of its parameters",
    ):
        Toolset(
            [FunctionTool(lambda: "", name="restart", effect="write", key="w:{city}")]
        ).definitions()


@pytest.mark.parametrize("schema", [
    {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
    {"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}},
    {"type": "object", "properties": {"a": {}}, "anyOf": [{"properties": {"x_1": {}}}]},
    {"type": "object"},
])  # fmt: skip
def test_a_name_that_an_open_schema_may_hold_is_believed(schema):
    assert FunctionTool(
        lambda **said: said, name="open", parameters=schema, resource="{x_1}"
    ).parameters


@pytest.mark.parametrize(("approve", "arguments", "asks"), [
    (False, {"days": 9}, False),
    (True, {}, True),
    ("days > 3", {"days": 9}, True),
    ("days > 3", {"days": 1}, False),
    ("days > 3", {}, True),                                  # cannot be told: ask
    (lambda city, days=1: days > 3, {"city": "Bern", "days": 9}, True),
    (lambda city, days=1: days > 3, {"city": "Bern"}, False),
])  # fmt: skip
def test_a_person_is_asked_as_declared_and_when_unsure(approve, arguments, asks):
    assert (
        FunctionTool(get_weather, approve=approve).call_rules.needs_approval(arguments)
        is asks
    )


@pytest.mark.parametrize(("check", "code", "said"), [
    (lambda city, days: None, None, ""),
    (lambda city, days: True, None, ""),
    (lambda city, days: "At most 7 days." if days > 7 else None, Code.RULE_VIOLATED, "At most 7 days."),
    (lambda city, days: False, Code.RULE_VIOLATED, "does not allow"),
    # an empty word is no reason, and no permission
    (lambda city, days: "", Code.RULE_VIOLATED, "does not allow"),
])  # fmt: skip
def test_a_rule_refuses_with_a_sentence(check, code, said):
    broken = FunctionTool(get_weather, check=check).check_rule(
        {"city": "Bern", "days": 9}
    )
    assert (broken and broken.code) == code
    assert broken is None or (said in broken.message and "canary" not in broken.message)


def test_a_rule_may_word_its_own_failure():
    def known(city, days):
        raise ToolError("NO_SUCH_CITY", "There is no such city.")

    assert (
        FunctionTool(get_weather, check=known).check_rule({"city": "x", "days": 1}).code
        == "NO_SUCH_CITY"
    )


@pytest.mark.parametrize(("resource", "effect", "touched"), [
    (None, "write", []),
    ("city:{city}", "write", [Resource("city:Bern", exclusive=True)]),
    # readers share
    ("city:{city}", "read", [Resource("city:Bern", exclusive=False)]),
    # the default counts
    (["city:{city}", "days:{days}"], "write", [Resource("city:Bern"), Resource("days:1")]),
])  # fmt: skip
def test_what_a_call_touches_follows_from_its_arguments(resource, effect, touched):
    assert (
        list(
            FunctionTool(
                get_weather, effect=effect, resource=resource
            ).resolve_resources({"city": "Bern"})
        )
        == touched
    )


@pytest.mark.parametrize(("key", "made"), [
    (None, "r1/1/0"),                                        # its place in the run
    ("w:{city}", "w:Bern"),
    # whether or not the model wrote the default out
    ("w:{city}:{days}", "w:Bern:1"),
    (lambda city, days: f"{city}+{days}", "Bern+1"),
    (lambda city, days: 7, "7"),
])  # fmt: skip
def test_a_key_names_the_act(key, made):
    assert (
        FunctionTool(get_weather, effect="write", key=key).resolve_key(
            {"city": "Bern"}, "r1/1/0"
        )
        == made
    )


def test_a_repr_says_the_name_the_effect_and_the_time():
    assert (
        repr(FunctionTool(get_weather, effect="read", timeout_s=5))
        == "<Tool get_weather: read, 5 s>"
    )
    assert repr(tool(get_weather)) == "<Tool get_weather: undeclared effect, 30 s>"


# ---------------------------------------------------------------------- what an author may raise


@pytest.mark.parametrize(("error", "code", "message"), [
    (ToolError("There is no order 881."), Code.TOOL_ERROR, "There is no order 881."),
    (ToolError("ORDER_NOT_FOUND", "There is no order 881."), "ORDER_NOT_FOUND", "There is no order 881."),
    (NoEffect("CARD_DECLINED", "Declined."), "CARD_DECLINED", "Declined."),
])  # fmt: skip
def test_an_author_words_a_failure_for_the_model(error, code, message):
    assert (error.failure.code, error.failure.message, str(error)) == (
        code,
        message,
        message,
    )


@pytest.mark.parametrize(("details", "told"), [
    ([], False),
    # one fault is told in the message
    ([{"field": "a", "message": "no"}], False),
    ([{"field": "a", "message": "no"}, {"field": "b", "message": "no"}], True),
])  # fmt: skip
def test_details_are_told_where_there_are_several(details, told):
    assert (
        "details" in ToolError("X", "Several.", details=details).failure.as_json()
    ) is told


def test_a_call_is_a_value():
    assert ToolCall("1", "x") == ToolCall("1", "x", "{}")


# that is what is tested
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_forked_while_a_tool_is_described_describes_its_own():
    entered, gate = threading.Event(), threading.Event()

    class Slow(str):
        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            entered.set()
            assert gate.wait(BOUND_S)
            return handler(str)

    def slow(word: Slow) -> str:
        """Take a word that is described slowly."""
        return word

    def quick(word: str) -> str:
        """Take a word."""
        return word

    described = threading.Thread(
        target=lambda: FunctionTool(slow, effect="read").checker
    )
    described.start()
    assert entered.wait(BOUND_S)
    if (child := os.fork()) == 0:
        signal.alarm(int(BOUND_S))  # ends it where it hangs
        os._exit(0 if FunctionTool(quick, effect="read").checker else 1)
    gate.set()
    described.join(BOUND_S)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("schema", [True, False, [], "x", 7])
def test_a_schema_that_is_no_object_is_a_definition_error(schema):
    with pytest.raises(ToolDefinitionError, match="described by an object"):
        hr.FunctionTool(
            lambda **given: 1,
            name="a",
            description="A.",
            parameters=schema,
            effect="read",
        )
