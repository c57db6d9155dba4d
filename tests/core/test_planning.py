"""Which calls of one turn may run together, and which wait for whom."""

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.calls import ToolCall
from handrail.core.planning import (
    MAX_FILLED_CHARS,
    NoSuchResult,
    Step,
    fill_references,
    find_waits,
    mentions_results,
    plan,
    plan_steps,
    positions,
)
from handrail.effects import Resource
from handrail.tools.function_tool import FunctionTool


def waves(*steps: Step) -> list[list[str]]:
    return [sorted(wave) for wave in plan_steps(steps).waves]


def write(id: str, *keys: str, **rest) -> Step:
    return Step(
        id,
        rest.pop("tool", "write"),
        rest.pop("arguments", {}),
        [Resource(key) for key in keys],
        **rest,
    )


def look(id: str, *keys: str, **rest) -> Step:
    return Step(
        id,
        "look",
        rest.pop("arguments", {}),
        [Resource(key, exclusive=False) for key in keys],
        **rest,
    )


def anything(id: str, *names: str) -> Step:
    """A step whose resource is known when those that it refers to have ended."""
    return Step(id, "write", {name: f"${name}$" for name in names}, None)


# ---------------------------------------------------------------------- resources


@pytest.mark.parametrize(("steps", "expected"), [
    ([], []),
    # nothing shared
    ([write("a"), write("b")], [["a", "b"]]),
    ([write("a", "u1"), write("b", "u2")], [["a", "b"]]),
    # in the order of the model
    ([write("a", "u1"), write("b", "u1")], [["a"], ["b"]]),
    ([write("a", "u1"), write("b", "u1"), write("c", "u1")], [["a"], ["b"], ["c"]]),
    # readers share
    ([look("a", "u1"), look("b", "u1")], [["a", "b"]]),
    ([write("a", "u1"), look("b", "u1"), look("c", "u1"), write("d", "u1")], [["a"], ["b", "c"], ["d"]]),
    # no reader overtakes a writer
    ([look("a", "u1"), write("b", "u1"), look("c", "u1")], [["a"], ["b"], ["c"]]),
    ([write("a", "u1", "u2"), write("b", "u2", "u3"), write("c", "u3", "u1")], [["a"], ["b"], ["c"]]),
    ([look("a", "u1"), write("b", "u1"), write("c", "u1")], [["a"], ["b"], ["c"]]),
    # two templates that name one thing
    ([write("a", "u1", "u1"), write("b", "u1"), write("c")], [["a", "c"], ["b"]]),
    ([write("a", "u1"), write("b", "u2"), write("c", "u1", "u2")], [["a", "b"], ["c"]]),
])  # fmt: skip
def test_who_shares_a_resource_goes_in_turn_and_all_others_together(steps, expected):
    assert waves(*steps) == expected


@pytest.mark.parametrize(("steps", "expected"), [
    ([write("a", "u1"), anything("b"), write("c", "u2")], [["a"], ["b"], ["c"]]),
    ([look("a", "u1"), look("b", "u2"), anything("c")], [["a", "b"], ["c"]]),
    ([anything("a"), anything("b")], [["a"], ["b"]]),
    # who touches nothing meets nobody
    ([write("a"), anything("b"), write("c")], [["a", "b", "c"]]),
])  # fmt: skip
def test_a_resource_that_is_not_known_yet_may_be_any(steps, expected):
    assert waves(*steps) == expected


# ---------------------------------------------------------------------- references


@pytest.mark.parametrize("arguments", [
    {"id": {"$call": "a"}},
    {"id": {"$call": "a", "path": "/id"}},
    {"id": "$a$"},
    {"id": "$a.id$"},
    {"id": "$a[0].id$"},
    {"deep": [{"er": "see $a.id$ there"}]},
    {"id": "$var1$"},                        # by its place in the turn
    {"id": "$var_1.id$"},
])  # fmt: skip
def test_a_call_waits_for_the_one_whose_result_it_names(arguments):
    planned = plan_steps([write("a"), write("b"), write("c", arguments=arguments)])
    assert planned.depends_on == {"a": [], "b": [], "c": ["a"]}
    assert planned.waits_for[2] == {0}


@pytest.mark.parametrize("arguments", [
    {"price": "$5-$10"},
    {"home": "$HOME"},
    {"path": "$PATH$"},
    {"id": {"$call": "nobody"}},
    {"id": {"$call": "a", "note": "two keys too many"}},
    {"id": {"$call": 7}},
    {"id": "$var9$"},
    {"id": f"$var{'9' * 5000}$"},
    {"id": "$b$"},                           # itself
    {"id": "$c$"},                           # a later one
])  # fmt: skip
def test_what_names_no_earlier_call_waits_for_nobody(arguments):
    assert (
        plan_steps(
            [write("a"), write("b", arguments=arguments), write("c")]
        ).depends_on["b"]
        == []
    )


def test_an_id_that_is_there_twice_means_its_nearest_earlier_call():
    planned = plan_steps(
        [write("a"), write("a"), write("b", arguments={"x": "$a$"}), write("a")]
    )
    assert planned.waits_for[2] == {1}


def test_a_reference_nested_beyond_all_reason_is_no_reference():
    nested = "$a$"
    for _ in range(100):
        nested = [nested]
    assert not mentions_results({"x": nested})


VALUES = {0: {"id": 7, "rows": [{"a/b": "x"}, {"c~d": None}], "9": "nine"}, 1: "text"}


@pytest.mark.parametrize(("written", "value"), [
    ({"$call": "a"}, VALUES[0]),
    ({"$call": "a", "path": ""}, VALUES[0]),
    ({"$call": "a", "path": "/id"}, 7),
    ({"$call": "a", "path": "/rows/0/a~1b"}, "x"),        # RFC 6901: ~1 is a slash
    ({"$call": "a", "path": "/rows/1/c~0d"}, None),       # and ~0 a tilde
    ({"$call": "a", "path": "/9"}, "nine"),
    ("$a.rows[0].a/b$", "x"),
    ("$a.id$", 7),                                        # alone it keeps its type
    # within a text it becomes text
    ("no. $a.id$!", "no. 7!"),
    ("$b$ and $b$", "text and text"),
    ("$var2$", "text"),
    ("$a.rows$ in $b$", '[{"a/b":"x"},{"c~d":null}] in text'),
    (["$a.id$", {"k": "$b$"}, 5], [7, {"k": "text"}, 5]),
])  # fmt: skip
def test_a_reference_is_replaced_by_what_it_names(written, value):
    assert fill_references(
        {"x": written}, positions(["a", "b", "c"]), VALUES, before=2, inline=True
    ) == {"x": value}


@pytest.mark.parametrize(
    "written",
    ["no. $a.id$!", "As the page asked: `ticket $var1$`", {"deep": [" $b$"]}, "$a$$a$"],
)
def test_within_a_longer_text_a_reference_is_refused(written):
    with pytest.raises(NoSuchResult, match="a reference is a whole argument"):
        fill_references({"x": written}, positions(["a", "b", "c"]), VALUES, before=2)


@pytest.mark.parametrize("written", ["costs $5-$10", "$PATH$ and $var9$", "echo $a"])
def test_a_text_in_which_no_earlier_call_is_named_stays_as_it_is(written):
    assert fill_references(
        {"x": written}, positions(["a", "b", "c"]), VALUES, before=2
    ) == {"x": written}


@pytest.mark.parametrize(("written", "said"), [
    ("$a.none$", "no `none`: it has id, rows, 9"),
    ("$b.id$", "no `id`: it is \"text\""),
    ("$a.rows[2]$", "no `rows[2]`"),
    ("$a.rows[-1]$", "no `rows[-1]`"),
    ("$a.rows[²]$", "no `rows[²]`"),
    ("$a.rows[99999999999999999999]$", "no `rows[9"),
    ({"$call": "c"}, "no earlier call"),                  # the call itself
    ("no. $d.id$!", "`d` is no earlier call"),
    ({"$call": "nobody"}, "no earlier call"),
    ({"$call": "d"}, "no earlier call"),
])  # fmt: skip
def test_a_reference_to_nothing_is_told_with_what_there_is(written, said):
    with pytest.raises(NoSuchResult) as told:
        fill_references(
            {"x": written},
            positions(["a", "b", "c", "d"]),
            VALUES,
            before=2,
            inline=True,
        )
    assert said in str(told.value)


@pytest.mark.parametrize(("text", "filled_in"), [
    ('{"id": 9, "rows": [{"n": 1}]}', {"x": 9, "y": 1}),
    (' [1]', None),
    ("{id: 9}", None),                                    # no JSON
    ('{"id": 9}{"id": 8}', None),
])  # fmt: skip
def test_a_path_leads_into_a_text_that_is_json(text, filled_in):
    written = {"x": "$a.id$", "y": "$a.rows[0].n$"}
    if filled_in is None:
        with pytest.raises(NoSuchResult, match="the result of `a` has no `id`"):
            fill_references(written, positions(["a", "b"]), {0: text}, before=1)
    else:
        assert (
            fill_references(written, positions(["a", "b"]), {0: text}, before=1)
            == filled_in
        )
    assert fill_references(
        {"x": "$a$"}, positions(["a", "b"]), {0: text}, before=1
    ) == {"x": text}


def test_a_reference_to_a_call_without_a_value_is_told():
    with pytest.raises(NoSuchResult, match="has no result"):
        fill_references("$a$", positions(["a", "b"]), {}, before=1)


@pytest.mark.parametrize("written", [
    "$a$ " * 2000,
    ["$a$"] * 2000,
    [{"$call": "a"}] * 2000,
    ["$b.rows$"] * 2000,
    [f"$b{'.' * n}rows$ in text" for n in range(1, 2000)],  # one value under many names
])  # fmt: skip
def test_references_insert_no_more_than_a_bound_however_often_they_name_a_long_result(
    written,
):
    with pytest.raises(NoSuchResult, match="would grow beyond 1048576 characters"):
        fill_references(
            {"x": written},
            positions(["a", "b", "c"]),
            {0: "x" * 1000, 1: {"rows": ["x" * 1000]}},
            before=2,
            inline=True,
        )


def test_references_may_insert_up_to_the_bound():
    half = "x" * (MAX_FILLED_CHARS // 2)
    assert fill_references(
        {"x": "$a$$a$"}, positions(["a", "b"]), {0: half}, before=1, inline=True
    ) == {"x": half + half}


# ---------------------------------------------------------------------- declared order


def test_a_tool_may_come_after_another_wherever_the_model_wrote_it():
    assert waves(write("a", after=["prepare"]), write("b", tool="prepare")) == [
        ["b"],
        ["a"],
    ]


def test_two_tools_that_each_come_after_the_other_run_in_the_order_of_the_model():
    steps = [write("a", tool="x", after=["y"]), write("b", tool="y", after=["x"])]
    assert waves(*steps) == [["a"], ["b"]]


def test_a_result_is_there_before_its_use_whatever_is_declared():
    steps = [
        write("a", tool="x", after=["y"]),
        write("b", tool="y", arguments={"id": "$a$"}),
    ]
    assert waves(*steps) == [["a"], ["b"]]


def test_a_tool_after_itself_changes_nothing_for_one_call():
    assert waves(write("a", tool="x", after=["x"])) == [["a"]]


N = 3000
CROWDS = {
    "unknown resources": [anything(str(n)) for n in range(N)],
    "each uses the last": [anything(f"c{n}", f"c{n - 1}") for n in range(N)],
    "unknown among known": [
        anything(str(n)) if n % 2 else write(str(n), f"u{n}") for n in range(N)
    ],
    "each after the other": [
        write(str(n), tool="xy"[n % 2], after=["yx"[n % 2]]) for n in range(N)
    ],
    "after itself": [write(str(n), tool="x", after=["x"]) for n in range(N)],
    "three in a circle": [
        write(str(n), tool="xyz"[n % 3], after=["zxy"[n % 3]]) for n in range(N)
    ],
    "a circle closed by uses": [
        write(
            f"c{n}",
            tool="xy"[n % 2],
            after=["x"] if n % 2 else [],
            arguments={"x": f"$c{n - 1}$"},
        )
        for n in range(N)
    ],
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_plan_grows_with_the_number_of_calls_and_not_with_its_square(crowd):
    planned = plan_steps(CROWDS[crowd])
    assert sum(map(len, planned.waits_for)) <= 2 * N
    assert len(planned.waves) == N


def test_calls_that_come_after_the_same_many_calls_share_what_they_wait_for():
    planned = plan_steps(
        [
            write(str(n), tool="xy"[n % 2], after=["x"] if n % 2 else [])
            for n in range(N)
        ]
    )
    assert {id(wait) for wait in planned.waits_for[1::2]} == {id(planned.waits_for[1])}
    assert planned.waits_for[1] == set(range(0, N, 2))


# ---------------------------------------------------------------------- from calls


def find(name: str) -> dict:
    """Find a user."""
    return {}


def update(user: int, region: str = "eu") -> str:
    """Change a user."""
    return ""


TOOLS = [
    FunctionTool(find, effect="read"),
    FunctionTool(update, effect="write", resource="user:{region}:{user}"),
]


def test_calls_are_planned_by_what_their_tools_declare():
    planned = plan([
        ToolCall("c1", "update", '{"user": 1}'),
        ToolCall("c2", "find", '{"name": "Ada"}'),
        ToolCall("c3", "update", '{"user": 1}'),
    ], TOOLS)  # fmt: skip
    assert planned.waves == [["c1", "c2"], ["c3"]]


def test_an_argument_left_out_touches_what_its_default_touches():
    left_out = ToolCall("c1", "update", '{"user": 1}')
    written_out = ToolCall("c2", "update", '{"user": 1, "region": "eu"}')
    assert plan([left_out, written_out], TOOLS).waves == [["c1"], ["c2"]]


@pytest.mark.parametrize(
    ("name", "arguments"), [("nobody", "{}"), ("update", "{"), ("find", "7")]
)
def test_a_call_that_cannot_be_read_waits_for_nothing(name, arguments):
    calls = [ToolCall("c1", "update", '{"user": 1}'), ToolCall("c2", name, arguments)]
    assert plan(calls, TOOLS).waves == [["c1", "c2"]]


# ---------------------------------------------------------------------- laws

IDS = "abcdef"


@st.composite
def turns(draw, declared: bool = False) -> list[Step]:
    """Calls that touch and use each other's, and where `declared` are to come after each other."""
    ids = IDS[: draw(st.integers(0, len(IDS)))]
    names = st.sampled_from(IDS).map(lambda id: f"${id}$")
    touches = (
        st.lists(
            st.builds(Resource, st.sampled_from(["u1", "u2"]), st.booleans()),
            max_size=2,
        )
        | st.none()
    )
    tools = st.sampled_from(["x", "y", "z"])
    after = st.lists(tools, max_size=1) if declared else st.just(())
    return [
        Step(
            id,
            draw(tools),
            draw(st.lists(names, max_size=2)),
            draw(touches),
            draw(after),
        )
        for id in ids
    ]


def meet(first: Step, second: Step) -> bool:
    """Whether two steps may touch the same thing, at least one of them alone. The slow and obvious way."""
    if first.touches is None or second.touches is None:
        return (first.touches is None or bool(first.touches)) and (
            second.touches is None or bool(second.touches)
        )
    return any(
        mine.key == its.key and (mine.exclusive or its.exclusive)
        for mine in first.touches
        for its in second.touches
    )


@settings(max_examples=150, deadline=None)
@given(steps=turns() | turns(declared=True))
def test_what_a_driver_follows_is_the_same_without_the_rest_of_the_plan(steps):
    plan = plan_steps(steps)
    waits = find_waits(steps)
    assert (waits.waits_for, waits.uses) == (plan.waits_for, plan.uses)


@given(steps=turns(declared=True))
def test_a_plan_keeps_every_call_and_never_goes_round_in_a_circle(steps):
    planned = plan_steps(steps)
    assert sorted(id for wave in planned.waves for id in wave) == [
        step.id for step in steps
    ]
    wave_of = {id: number for number, wave in enumerate(planned.waves) for id in wave}
    ranks = [wave_of[step.id] for step in steps]
    for index, waits in enumerate(planned.waits_for):
        # so there is no circle
        assert all(ranks[other] < ranks[index] for other in waits)
        assert planned.uses[index] <= waits


@settings(max_examples=150, deadline=None)
@given(steps=turns())
def test_calls_that_meet_on_a_resource_run_in_the_order_of_the_model(steps):
    planned = plan_steps(steps)
    for (i, first), (j, second) in combinations(enumerate(steps), 2):
        if meet(first, second):
            assert before(planned.waits_for, i, j)


@settings(max_examples=150, deadline=None)
@given(steps=turns(declared=True))
def test_calls_that_meet_on_a_resource_never_run_together_whatever_is_declared(steps):
    planned = plan_steps(steps)
    for (i, first), (j, second) in combinations(enumerate(steps), 2):
        if meet(first, second):
            assert before(planned.waits_for, i, j) or before(planned.waits_for, j, i)


@settings(max_examples=300, deadline=None)
@given(steps=turns(declared=True))
def test_of_two_calls_one_after_the_other_the_one_in_the_earlier_wave_has_ended(steps):
    planned = plan_steps(steps)
    rank = {id: number for number, wave in enumerate(planned.waves) for id in wave}
    for (i, first), (j, second) in permutations(enumerate(steps), 2):
        if first.tool in second.after and rank[first.id] < rank[second.id]:
            assert before(planned.waits_for, i, j)


def before(waits_for, first: int, second: int) -> bool:
    """Whether `second` waits for `first`, directly or by way of others."""
    return any(
        other == first or before(waits_for, first, other) for other in waits_for[second]
    )
