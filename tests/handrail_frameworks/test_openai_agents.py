"""The OpenAI Agents SDK under handrail: identity, approvals by `RunState`, adopted tools, endings."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("agents", reason="needs the extra `frameworks`")

from agents import Agent, RunConfig, Runner, RunState, function_tool
from agents.exceptions import AgentsException
from agents.items import ToolCallOutputItem

import handrail as hr
from handrail_frameworks.bench.on_openai_agents import ScriptedAgentsModel
from handrail_frameworks.bench.scenarios import ScriptedTurn
from handrail_frameworks.openai_agents import as_function_tools

END = ScriptedTurn(text="Done.", finish="stop")
CONFIG = RunConfig(tracing_disabled=True)


def asks_for(name, *arguments, first=1):
    calls = [
        (f"call_{number}", name, each if isinstance(each, str) else json.dumps(each))
        for number, each in enumerate(arguments, first)
    ]
    return ScriptedTurn(calls=calls)


class Shop:
    """An agent with tools of handrail, and what they did."""

    def __init__(self, *turns, own=None, given=None, **settings):
        self.paid: list[str] = []
        self.runtime = hr.Runtime(self.tools() if own is None else own, **settings)
        self.given = {"run": "t", **(given or {})}
        self.turns = [*turns, END]
        self.agent = self.make_agent()

    def make_agent(self):
        tools = as_function_tools(self.runtime, **self.given)
        return Agent(name="shop", model=ScriptedAgentsModel(self.turns), tools=tools)

    def tools(self):
        def pay(order: str, amount: int = 1) -> str:
            self.paid.append(f"{order} {amount}")
            return f"paid {amount}"

        how = {"description": "Pay for an order.", "approve": "amount > 100"}
        return [hr.FunctionTool(pay, effect="write", **how)]

    def do(self, given="Do it.", context=None):
        return asyncio.run(
            Runner.run(self.agent, given, context=context, run_config=CONFIG)
        )

    def resume(self, result, decide):
        """Go on as another process does: from the JSON of the state, with tools made anew."""
        saved = json.loads(json.dumps(result.to_state().to_json()))
        self.agent = self.make_agent()

        async def go_on():
            state = await RunState.from_json(self.agent, saved)
            for asked in state.get_interruptions():
                decide(state, asked)
            return await Runner.run(self.agent, state, run_config=CONFIG)

        return asyncio.run(go_on())

    def questions(self, state="open"):
        return self.runtime.blocking.approvals.list(state)


def texts(result):
    return [
        str(each.output)
        for each in result.new_items
        if isinstance(each, ToolCallOutputItem)
    ]


BIG = asks_for("pay", {"order": "A-1", "amount": 900})


def approve(state, asked):
    state.approve(asked)


def reject(state, asked):
    state.reject(asked, rejection_message="too much")


def test_the_context_names_the_run_and_is_what_tools_read_as_deps():
    seen = []

    @hr.tool(effect="read")
    def look(context: hr.Context) -> str:
        """Look."""
        seen.append((context.deps, context.run_id, context.call_id))
        return "seen"

    shop = Shop(asks_for("look", {}), own=[look], given={"run": lambda ctx: ctx.context})  # fmt: skip
    shop.do(context="thread-7")
    assert seen == [("thread-7", "thread-7", "call_1")]


def test_tenants_of_one_agent_share_nothing():
    options = {"options": lambda ctx: {"scope": ctx.context}}
    shop = Shop(asks_for("pay", {"order": "A-1"}), given=options)
    shop.do(context="acme")
    shop.do(context="bolt")
    assert shop.paid == ["A-1 1", "A-1 1"]


# ---------------------------------------------------------------------- approvals


@pytest.mark.parametrize(("decide", "paid", "told"), [
    (approve, ["A-1 900"], "paid 900"),
    (reject, [], "too much"),
])  # fmt: skip
def test_a_word_is_carried_out_and_no_question_stays_open(decide, paid, told):
    shop = Shop(BIG)
    waiting = shop.do()
    assert len(waiting.interruptions) == 1
    assert shop.paid == []
    result = shop.resume(waiting, decide)
    assert result.final_output == "Done."
    assert shop.paid == paid
    assert told in texts(result)[0]
    assert shop.questions() == []


def test_a_rejected_question_is_denied_with_its_reason():
    shop = Shop(BIG)
    shop.resume(shop.do(), reject)
    [denied] = shop.questions("denied")
    assert (denied.tool, denied.decision_reason) == ("pay", "too much")


def test_only_what_needs_a_person_interrupts():
    result = Shop(asks_for("pay", {"order": "A-1", "amount": 5})).do()
    assert texts(result) == ["paid 5"]


def test_a_word_on_a_tool_that_has_changed_since_asks_anew():
    shop = Shop(BIG)
    waiting = shop.do()
    [shown] = shop.questions()
    shop.runtime.tools.redeclare("pay", description="Pay, and close the account.")
    result = shop.resume(waiting, approve)
    assert shop.paid == []
    assert json.loads(texts(result)[0])["error_code"] == "APPROVAL_PENDING"
    assert [each.description for each in shop.questions() if each.id != shown.id] == [
        "Pay, and close the account."
    ]


def test_a_blanket_approval_lets_no_call_run_that_nobody_has_seen():
    shop = Shop(BIG, asks_for("pay", {"order": "A-2", "amount": 901}, first=2))
    result = shop.resume(shop.do(), lambda state, asked: state.approve(asked, always_approve=True))  # fmt: skip
    assert shop.paid == ["A-1 900"]
    assert "APPROVAL_PENDING" in texts(result)[-1]


def test_what_a_colleague_edited_in_the_queue_is_what_runs():
    shop = Shop(BIG)
    waiting = shop.do()
    [question] = shop.questions()
    shop.runtime.blocking.approvals.edit(
        question.id, {"order": "A-1", "amount": 5}, by="ben"
    )
    assert "paid 5" in texts(shop.resume(waiting, approve))[0]
    assert shop.paid == ["A-1 5"]


# ---------------------------------------------------------------------- adopted tools


class Existing:
    def __init__(self):
        self.created: list[str] = []

        def create_ticket(title: str) -> str:
            """Create a ticket."""
            self.created.append(title)
            return f"created {title}"

        self.tool = function_tool(create_ticket)


TICKET = asks_for("create_ticket", {"title": "late"})
AGAIN = asks_for("create_ticket", {"title": "late"}, first=2)
DECLARED = {"create_ticket": {"effect": "write", "key": "ticket:{title}"}}


def test_an_adopted_write_happens_once():
    existing = Existing()
    given = {"tools": [existing.tool], "declare": DECLARED}
    result = Shop(TICKET, AGAIN, own=[], given=given).do()
    assert existing.created == ["late"]
    assert ["created late" in text for text in texts(result)] == [True, True]


def test_an_adopted_tool_asks():
    existing = Existing()
    declare = {"create_ticket": {"effect": "write", "approve": True}}
    shop = Shop(TICKET, own=[], given={"tools": [existing.tool], "declare": declare})
    waiting = shop.do()
    assert existing.created == []
    shop.resume(waiting, approve)
    assert existing.created == ["late"]


def test_a_declaration_for_no_tool_is_refused():
    given = {"tools": [Existing().tool], "declare": {"create_tiket": {}}}
    with pytest.raises(hr.ConfigError, match="names 'create_tiket'"):
        Shop(own=[], given=given)


# ---------------------------------------------------------------------- endings, order


def test_a_circle_ends_the_run_with_its_reason():
    looks = []

    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        looks.append(1)
        return "seen"

    turns = [asks_for("look", {}, first=number) for number in range(1, 9)]
    with pytest.raises(AgentsException, match="look"):
        Shop(*turns, own=[look]).do()
    assert len(looks) == 2


def test_a_budget_that_is_used_up_ends_the_run_with_its_reason():
    turns = [asks_for("pay", {"order": str(n)}, first=n) for n in range(1, 9)]
    shop = Shop(*turns, budget=hr.Budget(calls=3))
    with pytest.raises(AgentsException, match="3 calls"):
        shop.do()
    assert shop.paid == ["1 1", "2 1", "3 1"]


def test_a_call_beside_the_one_that_ends_the_run_is_not_cut_off():
    done = []

    @hr.tool(effect="write", timeout_s=5)
    async def pay_slowly(order: str) -> str:
        """Pay."""
        await asyncio.sleep(0.3)
        done.append(order)
        return "paid"

    turn = asks_for("pay_slowly", {"order": "A-1"}, {"order": "A-2"})
    shop = Shop(turn, own=[pay_slowly], budget=hr.Budget(calls=1))
    with pytest.raises(AgentsException, match="1 call"):
        shop.do()
    assert done == ["A-1"]


def test_eight_calls_on_one_resource_keep_the_models_order():
    lines = []

    @hr.tool(effect="write", resource="log", write=hr.Write(repeatable=True))
    def append(line: int) -> str:
        """Append a line."""
        lines.append(line)
        return "appended"

    turn = asks_for("append", *({"line": n} for n in range(8)))
    for number in range(40):
        Shop(turn, own=[append], given={"run": str(number)}).do()
    assert lines == [*range(8)] * 40


def test_a_call_of_an_answer_that_was_cut_does_not_run():
    cut = ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1"}')], finish="length")
    shop = Shop(cut)
    assert "TRUNCATED_CALL" in texts(shop.do())[0]
    assert shop.paid == []


def test_a_streamed_run_pays_once_however_often_its_model_asks():
    shop = Shop(
        asks_for("pay", {"order": "A-1"}), asks_for("pay", {"order": "A-1"}, first=2)
    )

    async def stream():
        result = Runner.run_streamed(shop.agent, "Pay.", run_config=CONFIG)
        kinds = [event.type async for event in result.stream_events()]
        await shop.runtime.close()
        return kinds, result.final_output

    kinds, text = asyncio.run(stream())
    assert kinds.count("raw_response_event") == 3
    assert text == "Done."
    assert shop.paid == ["A-1 1"]
