"""The tools that a run can see."""

import threading

import pytest

from handrail.errors import Code, ConfigError, DuplicateToolError, ToolDefinitionError
from handrail.sync import SyncRuntime
from handrail.tools.function_tool import FunctionTool, tool
from handrail.tools.tool import BaseTool, Then
from handrail.tools.toolset import COVERED, Toolset


def find(name: str) -> str:
    """Find a user. Use it first."""
    return name


def update(user: int) -> str:
    """Change a user."""
    return ""


def drop(user: int) -> str:
    """Delete a user."""
    return ""


def names(tools) -> list[str]:
    return [each.name for each in tools]


def users() -> Toolset:
    return Toolset([
        FunctionTool(find, effect="read", tags=["user"]),
        FunctionTool(update, effect="write", tags=["user", "change"]),
        FunctionTool(drop, effect="destructive", permission="admin"),
    ])  # fmt: skip


# ---------------------------------------------------------------------- what is in it


def test_tools_stand_in_the_order_in_which_they_came():
    tools = users()
    tools.add(tool(name="again")(find))
    assert names(tools) == ["find", "update", "drop", "again"]


def test_functions_are_taken_as_tools():
    assert isinstance(Toolset([find]).get("find"), FunctionTool)


def test_two_tools_of_one_name_are_refused_with_what_to_do():
    with pytest.raises(DuplicateToolError, match=r"'find'.*prefix"):
        Toolset([find, find])


def test_a_tool_is_redeclared_in_its_place():
    tools = users()
    before = tools.snapshot()
    tools.redeclare("update", effect="destructive", name="overwrite")
    assert names(tools) == ["find", "overwrite", "drop"]
    assert (tools["overwrite"].effective_risk, before["update"].effective_risk) == (
        "high",
        "medium",
    )
    for name, declared, refusal in [
        ("gone", {}, KeyError),
        ("find", {"name": "drop"}, DuplicateToolError),
        ("find", {"effect": "reed"}, ToolDefinitionError),
    ]:
        with pytest.raises(refusal):
            tools.redeclare(name, **declared)
    assert names(tools) == ["find", "overwrite", "drop"]


def test_a_step_that_is_redeclared_is_so_where_code_calls_it_too():
    changing = FunctionTool(update, effect="write")
    booking = FunctionTool(find, name="book", then=Then(changing))
    tools = Toolset(
        [FunctionTool(find), changing, FunctionTool(drop, then=Then(booking))]
    )
    before = tools.snapshot()
    tools.redeclare("update", approve=True)
    assert (
        tools["update"].approve,
        tools["drop"].then.tool.then.tool is tools["update"],
    ) == (True, True)
    assert (tools["find"] is before["find"], before["drop"].then.tool.then.tool) == (
        True,
        changing,
    )


def test_a_step_does_not_change_either_once_a_set_has_its_tool():
    changing = FunctionTool(update, effect="write", approve=True)
    Toolset([FunctionTool(drop, then=Then(changing))])
    with pytest.raises(ToolDefinitionError, match="holds once a set has the tool"):
        changing.approve = False


def test_an_object_of_a_class_may_be_a_step_and_stand_in_the_set():
    class Receipt(BaseTool):
        def run(self, user: str) -> str:
            """Send a receipt."""

    receipt = Receipt()
    paying = FunctionTool(drop, then=Then(receipt))
    tools = Toolset([paying, receipt])
    tools.redeclare("Receipt", timeout_s=3)
    assert tools["drop"].then.tool is tools["Receipt"]
    assert names(tools.rename({"drop": "erase"})) == ["erase", "Receipt"]
    with pytest.raises(DuplicateToolError, match="has another tool's name"):
        Toolset([paying, Receipt()])


def test_tools_are_added_all_or_none():
    tools = Toolset([find])
    with pytest.raises(DuplicateToolError):
        tools.add(update, find)
    assert names(tools) == ["find"]


def test_tools_are_removed_all_or_none():
    tools = Toolset([find, update])
    with pytest.raises(KeyError):
        tools.remove("find", "nobody")
    assert names(tools) == ["find", "update"]
    tools.remove("find")
    assert names(tools) == ["update"]


@pytest.mark.parametrize("given", [7, "find", None])
def test_what_is_no_tool_is_refused(given):
    with pytest.raises(ToolDefinitionError, match="neither a function nor"):
        Toolset([given])


def test_a_class_of_tools_is_not_a_tool():
    class Search(BaseTool):
        def run(self, query: str) -> str:
            """Search."""

    with pytest.raises(ToolDefinitionError, match=r"make one: `Search\(\)`"):
        Toolset([Search])


def test_it_behaves_like_a_collection_by_name():
    tools = users()
    assert (len(tools), "find" in tools, "nobody" in tools) == (3, True, False)
    assert tools["find"] is tools.get("find")
    assert tools.get("nobody") is None


def test_a_repr_names_the_first_tools():
    assert repr(users()) == "<Toolset of 3: find, update, drop>"
    assert repr(Toolset(tool(name=f"t{n}")(find) for n in range(10))) == (
        "<Toolset of 10: t0, t1, t2, t3, t4, t5, t6, t7, ...>"
    )


def test_a_summary_is_a_line_for_each_tool():
    assert (
        users().summary()
        == "find: Find a user.\nupdate: Change a user.\ndrop: Delete a user."
    )


# ---------------------------------------------------------------------- parts of it


@pytest.mark.parametrize(("wanted", "found"), [
    ({}, ["find", "update", "drop"]),
    ({"only": ["drop", "find", "drop", "nobody"]}, ["drop", "find"]),
    ({"tag": "user"}, ["find", "update"]),
    ({"permission": "read"}, ["find"]),
    ({"permission": "write"}, ["find", "update"]),
    ({"permission": "admin"}, ["find", "update", "drop"]),
    ({"where": lambda each: each.writes}, ["update", "drop"]),
    ({"where": lambda each: each.writes, "tag": "user"}, ["update"]),
])  # fmt: skip
def test_a_filter_keeps_what_fits_everything_given(wanted, found):
    assert names(users().filter(**wanted)) == found


@pytest.mark.parametrize(("granted", "needed", "may"), [
    ("read", "read", True), ("read", "write", False), ("read", "admin", False),
    ("write", "read", True), ("write", "write", True), ("write", "admin", False),
    ("admin", "read", True), ("admin", "write", True), ("admin", "admin", True),
])  # fmt: skip
def test_admin_covers_write_and_write_covers_read(granted, needed, may):
    assert (needed in COVERED[granted]) is may


def test_a_prefix_sets_a_group_apart_and_leaves_the_original():
    tools = users()
    prefixed = tools.prefix("crm_")
    assert names(prefixed) == ["crm_find", "crm_update", "crm_drop"]
    assert names(tools) == ["find", "update", "drop"]
    assert prefixed["crm_find"]("Ada") == "Ada"


def test_names_can_be_changed_one_by_one():
    assert names(users().rename({"drop": "delete_user"})) == [
        "find",
        "update",
        "delete_user",
    ]


def test_a_new_name_that_is_taken_is_refused():
    with pytest.raises(DuplicateToolError):
        users().rename({"drop": "find"})


def test_two_sets_are_joined():
    assert names(Toolset([find]) + Toolset([update]) + [drop]) == [
        "find",
        "update",
        "drop",
    ]


def test_a_part_does_not_change_with_the_whole():
    tools = users()
    part = tools.filter(tag="user")
    tools.remove("find")
    part.remove("update")
    assert (names(tools), names(part)) == (["update", "drop"], ["find"])


# ---------------------------------------------------------------------- which tool was meant


@pytest.mark.parametrize(
    "said", ["find", "functions.find", "find<|channel|>json", " find "]
)
def test_a_name_is_found_under_what_models_wrap_around_it(said):
    assert users().resolve(said).name == "find"


@pytest.mark.parametrize(("said", "advice"), [
    ("fnd", "Did you mean `find`? Call it by exactly that name."),
    # only similar: suggested, never run by guess
    ("Find", "Did you mean `find`?"),
    ("update_user", "Did you mean `update`?"),
    ("calculate", "The tools are `find`, `update`, `drop`."),
    ("x" * 1_000_000, "The tools are `find`, `update`, `drop`."),
])  # fmt: skip
def test_an_unknown_name_is_told_with_the_nearest(said, advice):
    refusal = users().resolve(said)
    assert refusal.code == Code.UNKNOWN_TOOL
    assert advice in refusal.suggestion
    assert len(refusal.message) < 200


def test_of_many_tools_the_first_are_told():
    refusal = Toolset(tool(name=f"t{n}")(find) for n in range(30)).resolve("zzz")
    assert "`t19` and 10 more" in refusal.suggestion


def test_without_tools_the_model_is_told_to_answer():
    assert "answer without one" in Toolset().resolve("find").suggestion


# ---------------------------------------------------------------------- definitions


def test_definitions_are_made_once_for_each_state():
    tools = users()
    first = tools.definitions()
    assert tools.definitions() is first
    assert tools.snapshot().definitions() is first
    assert tools.definitions(strict=True) is not first
    tools.remove("drop")
    assert names_told(tools) == ["find", "update"]


def names_told(tools: Toolset) -> list[str]:
    return [each["function"]["name"] for each in tools.definitions()]


def test_an_unknown_dialect_is_told_with_the_known_ones():
    with pytest.raises(ConfigError, match="openai-chat"):
        users().definitions("openai-chatter")


@pytest.mark.slow
def test_ten_thousand_tools_are_described_and_found():
    tools = Toolset(FunctionTool(find, name=f"tool_{n}") for n in range(10_000))
    assert len(tools.snapshot()) == 10_000
    assert tools.resolve("tool_9999").name == "tool_9999"


# ---------------------------------------------------------------------- snapshots


def test_a_snapshot_is_the_same_object_until_the_set_changes():
    tools = users()
    snapshot = tools.snapshot()
    assert tools.snapshot() is snapshot
    assert snapshot.snapshot() is snapshot
    tools.add(tool(name="more")(find))
    assert tools.snapshot() is not snapshot


def test_a_change_does_not_reach_a_snapshot():
    tools = users()
    snapshot = tools.snapshot()
    tools.remove("find", "update")
    assert names(snapshot) == ["find", "update", "drop"]
    assert names_told(snapshot) == ["find", "update", "drop"]


def test_a_change_of_a_snapshot_does_not_reach_the_set():
    tools = users()
    tools.snapshot().remove("find")
    assert names(tools) == names(tools.snapshot()) == ["find", "update", "drop"]


def test_a_set_that_changes_while_it_is_described_is_described_as_one_state():
    """The definitions of the old state must not be kept as those of the new one, nor the other way round."""
    tools = users()

    class Meddler(FunctionTool):
        @property
        def parameters(self):
            if "more" not in tools:
                tools.add(tool(name="more")(find))
            return {"type": "object", "properties": {}}

    tools.add(Meddler(find, name="meddler"))
    assert names_told(tools) == ["find", "update", "drop", "meddler"]
    assert names_told(tools) == ["find", "update", "drop", "meddler", "more"]


def test_no_thread_ever_sees_half_a_change():
    tools, wrong, over = Toolset([find]), [], threading.Event()
    pair = [tool(name="left")(update), tool(name="right")(update)]

    def look():
        while not over.is_set():
            snapshot = tools.snapshot()
            if ("left" in snapshot) is not ("right" in snapshot) or names_told(
                snapshot
            ) != names(snapshot):
                wrong.append(names(snapshot))

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    for _ in range(200):
        tools.add(*pair)
        tools.remove("left", "right")
    over.set()
    for watcher in watchers:
        watcher.join(20)
    assert wrong == []


def test_a_set_within_a_list_of_tools_is_taken():
    found, changed = Toolset([find]), Toolset([update]).prefix("user_")
    assert names(Toolset([found, changed])) == ["find", "user_update"]
    found.add(changed)
    assert names(found) == ["find", "user_update"]
    with pytest.raises(DuplicateToolError, match="'find'"):
        Toolset([found, find])
    with SyncRuntime([found, drop]) as runtime:
        assert names(runtime.tools) == ["find", "user_update", "drop"]


# ---------------------------------------------------------------------- keys


def pay(order: str) -> str:
    """Pay."""
    return order


def paying(name, key, **settings):
    return FunctionTool(pay, name=name, effect="write", key=key, **settings)


@pytest.mark.parametrize(
    "key", ["order:{order}", "order:{order.id}", lambda order: order, "{order}:order"]
)
def test_two_writes_that_make_the_same_keys_are_refused_with_a_key_for_each(key):
    charge = paying("charge", "order:{order}")
    if not isinstance(key, str) or not key.startswith("order:"):
        Toolset([charge, paying("ship", key)])
        return
    for both in (
        lambda: Toolset([charge, paying("ship", key)]),
        lambda: Toolset([charge]).add(paying("ship", key)),
        lambda: Toolset([charge]) + Toolset([paying("ship", key)]),
        lambda: Toolset([charge, paying("ship", "s:{order}")]).redeclare(
            "ship", key=key
        ),
    ):
        with pytest.raises(ToolDefinitionError, match="'charge' and 'ship'") as refused:
            both()
        assert "key='charge:{order}' and key='ship:{order" in str(refused.value)


def test_a_step_that_two_tools_share_keeps_its_key():
    step = paying("note", "note:{order}")
    Toolset(
        [
            paying("charge", "charge:{order}", then=Then(step, {"order": "{order}"})),
            paying("ship", "ship:{order}", then=Then(step, {"order": "{order}"})),
        ]
    )
