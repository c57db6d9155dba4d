"""Where code keeps control: fixed steps after a tool, tools that end a run, calls required or forbidden at a step."""

from __future__ import annotations

import asyncio
import json

import pytest

import handrail as hr
from handrail.errors import (
    Code,
    ConfigError,
    DuplicateToolError,
    JournalMismatch,
    ToolDefinitionError,
)
from handrail.events import CallFinished
from handrail.stores.memory import MemoryStore
from handrail.testing import ScriptedApprover, ScriptedModel, call
from tests.engine.test_resume import Died, MortalStore, on  # noqa: F401  # `on` is a fixture
from tests.support.drivers import KINDS, Driver, chat_message


class Shop:
    """Orders and receipts, in a world outside. `placing` and `sending` are what its two tools declare."""

    def __init__(self, placing=(), sending=(), arguments=None):
        self.orders, self.receipts = [], []
        self.send = hr.FunctionTool(
            self.send_receipt, effect="write", blocking=False, **dict(sending)
        )
        given = arguments or {
            "order": "{order}",
            "total": "{result.total}",
            "text": "order {order}: {result.total}",
        }
        then = hr.Then(self.send, given)
        self.place = hr.FunctionTool(
            self.place_order,
            **{"effect": "write", "blocking": False, "then": then, **dict(placing)},
        )

    def place_order(self, order: str, gift: bool = False) -> dict:
        """Place an order."""
        if order == "gone":
            raise hr.NoEffect("SOLD_OUT", "It is sold out.")
        self.orders.append(order)
        return {"total": 12.5}

    def send_receipt(self, order: str, total: float, text: str = "") -> str:
        """Send a receipt."""
        if order == "unpaid":
            raise hr.NoEffect("NO_ADDRESS", "There is no address.")
        self.receipts.append((order, total, text))
        return f"sent to {order}"


@pytest.fixture(params=KINDS)
def driver(request):
    made = []

    def make(tools, **how):
        made.append(Driver(request.param, tools, how))
        return made[-1]

    yield make
    for each in made:
        each.close()


def ran(driver, tools, script, *, flow=(), **how):
    """Run a script; return the run and what the model was asked."""
    model = ScriptedModel(script)
    return driver(tools, **how).run("Go.", model=model, flow=flow), model


PLACE = call("place_order", order="a")


def begin(on, store, shop):
    """Start the run `r_1`, which places one order."""
    model = ScriptedModel([PLACE, "Done."])
    return on(store, [shop.place], "run", "Go.", model=model, run_id="r_1")


# ---------------------------------------------------------------------- then


def test_a_step_follows_a_call_that_succeeded_with_what_the_template_takes_from_it(
    driver,
):
    shop = Shop()
    run, _ = ran(driver, [shop.place], [PLACE, "Done."])
    assert (shop.orders, shop.receipts) == (["a"], [("a", 12.5, "order a: 12.5")])
    assert json.loads(run.messages[2].result.text)["note"].endswith(
        "it returned: sent to a"
    )


def test_the_model_reads_one_result_for_its_one_call_and_is_not_shown_the_step(driver):
    run, model = ran(
        driver,
        [Shop().place],
        [PLACE, call("send_receipt", order="b", total=1), "Done."],
    )
    assert [type(each).__name__ for each in run.messages[1:3]] == [
        "AssistantMessage",
        "ToolMessage",
    ]
    assert [tool.name for tool in model.requests[0].tools] == ["place_order"]
    assert run.messages[4].result.failure.code == Code.UNKNOWN_TOOL


def test_no_step_follows_a_call_that_failed(driver):
    shop = Shop(arguments={"order": "x", "total": 1})
    run, _ = ran(driver, [shop.place], [call("place_order", order="gone"), "Sold out."])
    assert (run.status, shop.receipts) == ("done", [])


def test_a_step_that_fails_is_told_beside_the_result_and_the_call_stands(driver):
    shop = Shop()
    run, _ = ran(driver, [shop.place], [call("place_order", order="unpaid"), "Placed."])
    result = run.messages[2].result
    assert result.ok and shop.orders == ["unpaid"] and "NO_ADDRESS" in result.text


def test_a_function_makes_the_arguments_or_says_that_nothing_follows(driver):
    shop = Shop(
        arguments=lambda order, gift, result: (
            None if gift else {"order": order, "total": result["total"]}
        )
    )
    ran(
        driver,
        [shop.place],
        [PLACE, call("place_order", order="b", gift=True), "Done."],
    )
    assert shop.receipts == [("a", 12.5, "")]


@pytest.mark.parametrize(
    "arguments",
    [{"order": "{result.absent}", "total": 1}, lambda **_: 1 / 0, lambda **_: 7],
)
def test_a_step_whose_arguments_cannot_be_made_is_told_as_failed_without_the_reason(
    driver, arguments
):
    shop = Shop(arguments=arguments)
    run, _ = ran(driver, [shop.place], [PLACE, "Done."])
    text = run.messages[2].result.text
    assert (run.status, shop.receipts) == ("done", []) and "INTERNAL_ERROR" in text
    assert not any(word in text for word in ("absent", "division", "iterable"))


def test_a_step_is_checked_like_any_call(driver):
    shop = Shop(arguments={"order": "{order}", "total": "a lot"})
    run, _ = ran(driver, [shop.place], [PLACE, "Done."])
    assert (
        shop.receipts == []
        and "`total` must be a number" in run.messages[2].result.text
    )


def test_what_a_result_holds_is_never_read_as_a_reference_to_another_call(driver):
    taken = []

    @hr.tool(effect="read")
    def look() -> dict:
        """Look."""
        return {"text": {"$call": "call_1", "path": "/secret"}}

    @hr.tool(effect="read")
    def note(text: dict) -> str:
        """Note."""
        taken.append(text)
        return "noted"

    look.then = hr.Then(note, {"text": "{result.text}"})
    ran(driver, [look], [call("look"), "Done."])
    assert taken == [{"$call": "call_1", "path": "/secret"}]


def test_two_orders_with_equal_receipts_get_two(driver):
    shop = Shop(arguments={"order": "x", "total": 1})
    ran(driver, [shop.place], [[PLACE, call("place_order", order="b")], "Done."])
    assert len(shop.receipts) == 2


def test_an_order_that_was_placed_before_under_its_key_has_its_receipt_already(driver):
    shop = Shop(placing={"key": "order:{order}"})
    here = driver([shop.place])
    for run_id in ("r_1", "r_2"):
        here.run("Go.", model=ScriptedModel([PLACE, "Done."]), run_id=run_id)
    assert (len(shop.orders), len(shop.receipts)) == (1, 1)


def test_calls_from_elsewhere_are_followed_too(driver):
    shop = Shop()
    assert "sent to a" in driver([shop.place]).call("place_order", {"order": "a"}).text
    assert shop.receipts == [("a", 12.5, "order a: 12.5")]


def test_steps_follow_steps(driver):
    shop, filed = Shop(), []

    @hr.tool(effect="write")
    def file(name: str) -> str:
        """File."""
        filed.append(name)
        return "filed"

    shop.send.then = hr.Then(file, {"name": "{order}.pdf"})
    run, _ = ran(driver, [shop.place], [PLACE, "Done."])
    assert filed == ["a.pdf"] and "filed" in run.messages[2].result.text


def test_a_step_counts_against_the_budget_and_needs_permission(driver):
    shop = Shop()
    run, _ = ran(driver, [shop.place], [PLACE, "Done."], budget=hr.Budget(calls=1))
    assert shop.receipts == [] and Code.BUDGET_EXHAUSTED in run.messages[2].result.text
    shop = Shop(sending={"permission": "admin"})
    run, _ = ran(driver, [shop.place], [PLACE, "Done."])
    assert shop.receipts == [] and Code.NOT_PERMITTED in run.messages[2].result.text


def test_events_tell_of_a_step_as_of_any_call(driver):
    here = driver([Shop().place])
    here.run("Go.", model=ScriptedModel([PLACE, "Done."]))
    assert [event.call.name for event in here.told(CallFinished)] == [
        "place_order",
        "send_receipt",
    ]


def test_a_run_whose_step_waits_for_a_person_waits_and_goes_on_with_the_step(on):
    store, shop = MortalStore(), Shop(sending={"approve": True})
    run = begin(on, store, shop)
    assert (run.status, run.reason) == (
        "waiting",
        "waiting for approval of send_receipt",
    )
    approver = ScriptedApprover([True])
    run = on(
        store,
        [shop.place],
        "resume",
        "r_1",
        model=ScriptedModel([PLACE, "Done."]),
        made={"approver": approver},
    )
    assert (run.status, shop.orders, len(shop.receipts)) == ("done", ["a"], 1)


def test_a_run_that_dies_at_any_step_places_one_order_and_sends_one_receipt(on):
    def begun(store, shop, verb, *asked):
        return on(
            store, [shop.place], verb, *asked, model=ScriptedModel([PLACE, "Done."])
        )

    store, shop = (
        MortalStore(),
        Shop(placing={"replay": "key"}, sending={"replay": "key"}),
    )
    begin(on, store, shop)
    steps = store.count
    # begin, the answer, claim and settle and an entry of each of the two, the end
    assert steps >= 8
    for at in range(2, steps + 1):
        store, shop = (
            MortalStore(),
            Shop(placing={"replay": "key"}, sending={"replay": "key"}),
        )
        store.dies_at, store.after = at, True
        with pytest.raises(Died):
            begin(on, store, shop)
        store.dies_at = None
        run = begun(store, shop, "resume", "r_1")
        assert (run.status, shop.orders, len(shop.receipts)) == ("done", ["a"], 1), at
        assert "sent to a" in run.messages[2].result.text


@pytest.mark.parametrize("script", [[PLACE, PLACE, "Done."], [[PLACE, PLACE], "Done."]])
def test_a_write_that_the_model_repeats_is_followed_once(driver, script):
    shop = Shop()
    run, _ = ran(driver, [shop.place], script)
    told = [
        message.result
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ]
    assert (shop.orders, len(shop.receipts)) == (["a"], 1)
    assert all("it returned: sent to a" in result.text for result in told)


def test_a_message_that_is_delivered_again_is_followed_once_also_in_another_runtime(
    driver,
):
    store, shop = MemoryStore(), Shop()
    message = chat_message(hr.ToolCall("c1", "place_order", '{"order": "a"}'))
    here, other = (driver([shop.place], store=store) for _ in range(2))
    for each in (here, here, other):
        each.handle(message, run="r_1")
    assert (shop.orders, len(shop.receipts)) == (["a"], 1)


def test_a_repeated_write_whose_run_dies_before_its_step_is_followed_once(on):
    def script():
        return ScriptedModel([PLACE, PLACE, "Done."])

    store, shop = MortalStore(), Shop(sending={"replay": "key"})
    on(store, [shop.place], "run", "Go.", model=script(), run_id="r_1")
    claims = [number for number, name in enumerate(store.asked, 1) if name == "claim"]
    # the order, its receipt, the order again, its receipt again
    assert len(claims) == 4
    store, shop = MortalStore(), Shop(sending={"replay": "key"})
    store.dies_at = claims[3]  # the repeated order is in the journal, its step is not
    with pytest.raises(Died):
        on(store, [shop.place], "run", "Go.", model=script(), run_id="r_1")
    store.dies_at = None
    run = on(store, [shop.place], "resume", "r_1", model=script())
    assert (run.status, shop.orders, len(shop.receipts)) == ("done", ["a"], 1)


def test_a_replay_tells_of_the_step_and_does_nothing(on):
    store, shop = MortalStore(), Shop()
    first = begin(on, store, shop)
    again = on(store, [shop.place], "replay", "r_1", model=ScriptedModel(["never"]))
    assert [m.result.text for m in again.messages[2:3]] == [
        m.result.text for m in first.messages[2:3]
    ]
    assert len(shop.receipts) == 1


def test_a_step_can_be_taken_back_and_a_fork_knows_of_it(on):
    store, taken = MortalStore(), []
    shop = Shop(
        sending={
            "write": hr.Write(
                compensate=lambda order, total, text, result: taken.append(order)
            )
        }
    )
    begin(on, store, shop)
    (offered,) = on(store, [shop.place], "undoable", "r_1")
    assert (offered.tool, offered.step) == ("send_receipt", "1.1")
    on(store, [shop.place], "undo", "r_1")
    assert taken == ["a"]
    how = {
        "model": ScriptedModel([PLACE, "Done."]),
        "made": {"approver": ScriptedApprover([True])},
    }
    forked = on(store, [shop.place], "fork", "r_1", at_turn=1, **how)
    assert (forked.reason, shop.orders) == (
        "waiting for approval of send_receipt",
        ["a", "a"],
    )


def test_equal_steps_after_two_calls_are_two_things_to_take_back(on):
    store = MortalStore()
    shop = Shop(
        sending={"write": hr.Write(compensate=lambda **_: None)},
        arguments={"order": "x", "total": 1},
    )
    script = [[PLACE, call("place_order", order="b")], "Done."]
    on(store, [shop.place], "run", "Go.", model=ScriptedModel(script), run_id="r_1")
    assert [each.step for each in on(store, [shop.place], "undoable", "r_1")] == [
        "1.3",
        "1.2",
    ]


def test_a_run_waits_for_a_step_behind_a_step(driver):
    shop = Shop(placing={"limits": hr.Limits(ends_run=True)})

    @hr.tool(effect="write", approve=True)
    def file() -> str:
        """File."""
        return "filed"

    shop.send.then = hr.Then(file)
    run, _ = ran(driver, [shop.place], [PLACE, "never"])
    assert (run.status, run.reason) == ("waiting", "waiting for approval of file")


def test_a_step_needs_what_is_injected_into_it_before_the_model_is_asked(driver):
    @hr.tool(effect="read")
    def note(tenant: hr.Injected) -> str:
        """Note."""
        return "noted"

    @hr.tool(effect="read", then=hr.Then(note))
    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(hr.MissingInjection, match="tenant"):
        ran(driver, [look], ["never asked"])


@pytest.mark.parametrize(("make", "said"), [
    (lambda: hr.Then(print), "made with @tool"),
    (lambda: hr.Then(Shop().send, {"order": "{order"}), "no.* template|is not a template"),
    (lambda: hr.FunctionTool(len, then="send_receipt", parameters={"type": "object"}), "`then` is a `Then"),
    (lambda: Shop(arguments={"order": "{odrer}"}).place.parameters, "Did you mean `order`"),
])  # fmt: skip
def test_a_step_that_cannot_be_is_refused_when_it_is_declared(make, said):
    with pytest.raises(ToolDefinitionError, match=said):
        make()


def test_a_step_with_the_name_of_another_tool_is_refused_when_the_set_is_made():
    @hr.tool(effect="read")
    def send_receipt() -> str:
        """Another one."""
        return ""

    with pytest.raises(DuplicateToolError, match="send_receipt"):
        hr.Toolset([send_receipt, Shop().place])


# ---------------------------------------------------------------------- ends_run


@hr.tool(effect="read", limits=hr.Limits(ends_run=True))
def report(month: int) -> dict:
    """Make the report of a month."""
    if month > 12:
        raise hr.ToolError("NO_MONTH", "There are twelve.")
    return {"month": month}


@hr.tool(effect="read")
def look() -> str:
    """Look around."""
    return "seen"


def test_what_a_tool_that_ends_the_run_returns_is_the_answer(driver):
    run, model = ran(
        driver,
        [report, look],
        [[call("look"), call("report", month=2)], "never asked for"],
    )
    assert (run.status, run.output, run.text, len(model.requests)) == (
        "done",
        {"month": 2},
        '{"month":2}',
        1,
    )
    assert [each.result.ok for each in run.messages[2:]] == [True, True]


def test_it_does_not_end_the_run_before_what_must_be_called(driver):
    script = [
        call("report", month=2),
        call("look"),
        call("report", month=2),
        "never asked for",
    ]
    run = driver([report, look]).run(
        "Go.", model=(model := ScriptedModel(script)), flow=[hr.Require("look")]
    )
    assert (run.status, run.output, len(model.requests)) == ("done", {"month": 2}, 3)
    assert "call `look` first" in run.messages[3].text


def test_a_call_of_it_that_fails_does_not_end_the_run(driver):
    run, _ = ran(driver, [report], [call("report", month=13), "There are only twelve."])
    assert (run.status, run.text, run.output) == (
        "done",
        "There are only twelve.",
        None,
    )


@pytest.mark.parametrize(("form", "status", "output"), [
    ({"type": "object", "properties": {"month": {"type": "integer"}}}, "done", {"month": 2}),
    ({"type": "object", "properties": {"month": {"type": "string"}}}, "invalid", None),
])  # fmt: skip
def test_its_value_must_have_the_form_that_was_asked_for(driver, form, status, output):
    run = driver([report]).run(
        "Go.", model=ScriptedModel([call("report", month=2), "never"]), output=form
    )
    assert (run.status, run.output) == (status, output)


def test_an_answer_given_beside_it_is_not_what_is_taken(driver):
    form = hr.Form(
        {"type": "object", "properties": {"month": {"type": "integer"}}},
        by="tool",
        max_attempts=1,
    )
    model = ScriptedModel([[call("report", month=2), call("answer", month=3)]])
    run = driver([report]).run("Go.", model=model, output=form)
    assert (run.status, run.output) == ("done", {"month": 2})


def test_a_call_beside_it_that_waits_for_a_person_comes_first(on):
    store, shop = MortalStore(), Shop(placing={"approve": True})
    script = [[PLACE, call("report", month=2)], "never"]
    run = on(
        store,
        [shop.place, report],
        "run",
        "Go.",
        model=ScriptedModel(script),
        run_id="r_1",
    )
    assert run.status == "waiting"
    how = {
        "model": ScriptedModel(script),
        "made": {"approver": ScriptedApprover([True])},
    }
    run = on(store, [shop.place, report], "resume", "r_1", **how)
    assert (run.status, run.output, shop.orders) == ("done", {"month": 2}, ["a"])


def test_a_step_after_it_that_fails_is_for_the_model_to_tell(driver):
    shop = Shop(placing={"limits": hr.Limits(ends_run=True)})
    run, _ = ran(
        driver,
        [shop.place],
        [call("place_order", order="unpaid"), "Placed; the receipt failed."],
    )
    assert run.text == "Placed; the receipt failed."


# ---------------------------------------------------------------------- required and forbidden


@hr.tool(effect="read")
def search(words: str = "") -> str:
    """Search."""
    if words == "down":
        raise hr.ToolError("DOWN", "The index is down.")
    return "found"


REFUND = call("refund")


@pytest.fixture
def refunds():
    made = []

    @hr.tool(effect="write")
    def refund() -> str:
        """Refund."""
        made.append(1)
        return "refunded"

    return [look, search, refund], made


def refusals(run):
    return [
        each.result.failure.code
        for each in run.messages
        if isinstance(each, hr.ToolMessage) and not each.result.ok
    ]


def test_the_first_call_that_runs_is_the_required_one(driver, refunds):
    tools, made = refunds
    run, model = ran(
        driver,
        tools,
        [REFUND, call("search"), REFUND, "Ok."],
        flow=[hr.Require("search", turn=1)],
    )
    assert (refusals(run), made) == ([Code.NOT_PERMITTED], [1])
    assert [each.options.tool_choice for each in model.requests] == [
        "search",
        "search",
        "auto",
        "auto",
    ]


def test_an_answer_before_the_required_call_is_not_taken(driver, refunds):
    run, model = ran(
        driver,
        refunds[0],
        ["Hello.", call("search"), "Found."],
        flow=[hr.Require("search")],
    )
    assert (run.status, run.text) == ("done", "Found.")
    assert run.messages[2].text.startswith(
        "This was not taken as an answer: call `search` first."
    )
    assert [each.options.tool_choice for each in model.requests] == [
        "auto",
        "search",
        "auto",
    ]


def test_a_required_call_that_ran_and_failed_is_enough(driver, refunds):
    run, _ = ran(
        driver,
        refunds[0],
        [call("search", words="down"), "It is down."],
        flow=[hr.Require("search", turn=1)],
    )
    assert (run.status, run.text) == ("done", "It is down.")


@pytest.mark.parametrize(
    "line", ["I would rather talk.", REFUND, call("search", words=7)]
)
def test_a_model_that_leaves_it_out_three_times_in_a_row_ends_the_run(
    driver, refunds, line
):
    run, model = ran(driver, refunds[0], [line], flow=[hr.Require("search", turn=1)])
    assert (run.status, len(model.requests), refunds[1]) == ("stopped", 3, [])
    assert "must call search" in run.reason


def test_one_of_several_may_be_required(driver, refunds):
    run, model = ran(
        driver, refunds[0], [call("look"), "Ok."], flow=[hr.Require("[ls]*", turn=1)]
    )
    assert (run.status, model.requests[0].options.tool_choice) == ("done", "required")


def test_what_must_be_called_is_shown_also_where_few_of_many_tools_are(driver, refunds):
    others = [
        hr.FunctionTool(
            lambda: 0, name=f"refund_{n}", description="Refund an order.", effect="read"
        )
        for n in range(60)
    ]
    how = {"flow": [hr.Require("[ls]*", turn=1)], "selector": "bm25"}
    _, model = ran(driver, [*refunds[0], *others], [call("look"), "Ok."], **how)
    names = [tool.name for tool in model.requests[0].tools]
    assert {"look", "search"} <= {*names}
    assert len(names) < 60


def test_a_forbidden_call_is_refused_until_the_other_has_succeeded_in_an_earlier_turn(
    driver, refunds
):
    tools, made = refunds
    script = [[call("search"), REFUND], [call("search", words="down")], REFUND, "Ok."]
    run, _ = ran(driver, tools, script, flow=[hr.Forbid("refund", until="search")])
    assert (refusals(run), made) == ([Code.NOT_PERMITTED, "DOWN"], [1])


def test_where_nothing_may_be_called_the_model_is_told_so_on_the_wire(driver, refunds):
    rules = [hr.Forbid("*", when=lambda step: step.turn > 1)]
    run, model = ran(
        driver, refunds[0], [call("look"), call("search"), "Ok."], flow=rules
    )
    assert [each.options.tool_choice for each in model.requests] == [
        "auto",
        "none",
        "none",
    ]
    assert refusals(run) == [Code.NOT_PERMITTED]


def test_until_never_forbids_what_it_waits_for(driver, refunds):
    run, _ = ran(
        driver,
        refunds[0],
        [call("search"), REFUND, "Ok."],
        flow=[hr.Forbid("*", until="search")],
    )
    assert (refusals(run), refunds[1]) == ([], [1])


@pytest.mark.parametrize("way", ["native", "tool", "prompt"])
def test_an_answer_of_a_given_form_is_not_taken_before_its_time_either(
    driver, refunds, way
):
    answer = call("answer", kind="a") if way == "tool" else '{"kind": "a"}'
    form = hr.Form(
        {"type": "object", "properties": {"kind": {"type": "string"}}}, by=way
    )
    model = ScriptedModel([answer, call("search"), answer])
    run = driver(refunds[0]).run(
        "Go.", model=model, output=form, flow=[hr.Require("search")]
    )
    assert (run.status, run.output, len(model.requests)) == ("done", {"kind": "a"}, 3)
    assert model.requests[1].options.tool_choice == "search"


def test_steps_by_code_are_no_matter_of_the_models_rules(driver):
    shop = Shop()
    flow = [hr.Require("place_order", turn=1), hr.Forbid("send_receipt")]
    ran(
        driver,
        [shop.place, shop.send],
        [PLACE, call("send_receipt", order="b", total=1), "Ok."],
        flow=flow,
    )
    assert [order for order, *_ in shop.receipts] == ["a"]


@pytest.mark.parametrize(("rules", "said"), [
    ([hr.Require("serach")], "did you mean 'search'"),
    ([hr.Forbid("refund", until="nothing")], "names 'nothing'"),
    (["search"], "is a `Require` or a `Forbid`"),
])  # fmt: skip
def test_a_rule_about_no_tool_is_told_before_the_model_is_asked(
    driver, refunds, rules, said
):
    with pytest.raises(ConfigError, match=said):
        ran(driver, refunds[0], ["never asked"], flow=rules)


def test_a_kept_run_is_held_to_its_rules_by_whoever_goes_on_with_it(on, refunds):
    tools, made = refunds
    store = MortalStore()
    store.dies_at = 3
    rules = [hr.Require("search", turn=1), hr.Forbid("refund", until="search")]
    with pytest.raises(Died):
        on(
            store,
            tools,
            "run",
            "Go.",
            model=ScriptedModel([call("look"), REFUND]),
            flow=rules,
            run_id="r_1",
        )
    store.dies_at = None
    run = on(store, tools, "resume", "r_1", model=ScriptedModel([call("look"), REFUND]))
    assert (run.status, made) == ("stopped", [])


def test_a_rule_by_a_function_must_be_given_again(on, refunds):
    store, rules = MortalStore(), [hr.Forbid("refund", when=lambda step: True)]
    on(
        store,
        refunds[0],
        "run",
        "Go.",
        model=ScriptedModel(["Ok."]),
        flow=rules,
        run_id="r_1",
    )
    with pytest.raises(ConfigError, match="give flow= again"):
        on(store, refunds[0], "resume", "r_1", model=ScriptedModel(["Ok."]))
    assert on(
        store, refunds[0], "resume", "r_1", model=ScriptedModel(["Ok."]), flow=rules
    ).ok


def test_rules_that_a_journal_garbled_are_no_rules():
    from handrail.core.flow import rules_from_json

    with pytest.raises(JournalMismatch):
        rules_from_json([["permit", "x", None, False]])


def test_a_run_without_rules_asks_as_its_options_say():
    async def main():
        model = ScriptedModel(["Ok."])
        async with hr.Runtime([look]) as runtime:
            await runtime.run(
                "Go.", model=model, options=hr.Options(tool_choice="required")
            )
        return model.requests[0].options.tool_choice

    assert asyncio.run(main()) == "required"
