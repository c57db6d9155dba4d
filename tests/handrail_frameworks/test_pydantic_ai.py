"""pydantic-ai under handrail: identity, approvals by deferred tools, adopted tools, progress, endings."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra `frameworks`")

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import (  # fmt: skip
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolApproved, ToolDenied
from pydantic_ai.toolsets import FunctionToolset

import handrail as hr
from handrail_frameworks.pydantic_ai import HandrailToolset
from handrail_frameworks.pydantic_ai_events import ToolProgress


class Shop:
    """An agent whose model asks for one turn of calls after each question, and what its tools did."""

    def __init__(self, *turns, own=None, toolset=None, **settings):
        self.paid: list[str] = []
        self.turns = list(turns)
        self.shown: list[list[str]] = []
        self.runtime = hr.Runtime(self.tools() if own is None else own, **settings)
        self.toolset = HandrailToolset(self.runtime, **(toolset or {}))
        self.agent = Agent(
            FunctionModel(self.answer),
            toolsets=[self.toolset],
            output_type=[str, DeferredToolRequests],
        )
        self.messages = []

    def tools(self):
        def pay(order: str, amount: int = 1) -> str:
            self.paid.append(f"{order} {amount}")
            return f"paid {amount}"

        how = {"description": "Pay for an order.", "approve": "amount > 100"}
        return [hr.FunctionTool(pay, effect="write", **how)]

    async def answer(self, messages, info):
        self.shown.append([each.name for each in info.function_tools])
        if not self.turns:
            return ModelResponse([TextPart("Done.")])
        return self.turns.pop(0)

    def do(self, question="Do it.", **more):
        running = self.agent.run(
            question, message_history=self.messages, conversation_id="t", **more
        )
        result = asyncio.run(running)
        self.messages = result.all_messages()
        return result.output

    def resume(self, word, **metadata):
        answers = DeferredToolResults(approvals={"call_1": word})
        if metadata:
            answers.metadata["call_1"] = metadata
        return self.do(None, deferred_tool_results=answers)

    def texts(self):
        return [
            part.content
            for message in self.messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]

    def questions(self, state="open"):
        return self.runtime.blocking.approvals.list(state)


def asks_for(name, *arguments, first=1):
    return ModelResponse([
        ToolCallPart(name, each if isinstance(each, str) else json.dumps(each), f"call_{number}")
        for number, each in enumerate(arguments, first)
    ])  # fmt: skip


BIG = asks_for("pay", {"order": "A-1", "amount": 900})
TEXT_END = ModelResponse([TextPart("Done.")])


def test_calls_of_two_questions_are_two_though_the_model_numbers_them_alike():
    shop = Shop(asks_for("pay", {"order": "A-1"}), TEXT_END, asks_for("pay", {"order": "A-2"}))  # fmt: skip
    shop.do()
    shop.do()
    assert shop.paid == ["A-1 1", "A-2 1"]
    assert shop.texts() == ["paid 1", "paid 1"]


def test_deps_and_the_names_of_the_call_reach_the_tool():
    seen = []

    @hr.tool(effect="read")
    def look(context: hr.Context) -> str:
        """Look."""
        seen.append((context.deps, context.run_id, context.call_id))
        return "seen"

    Shop(asks_for("look", {}), own=[look]).do(deps="the shop")
    assert seen == [("the shop", "t", "call_1")]


def test_tenants_of_one_agent_share_nothing():
    shop = Shop(
        asks_for("pay", {"order": "A-1"}), TEXT_END, asks_for("pay", {"order": "A-1"}),
        toolset={"options": lambda ctx: {"scope": ctx.deps}},
    )  # fmt: skip
    shop.do(deps="acme")
    shop.messages = []
    shop.do(deps="bolt")
    assert shop.paid == ["A-1 1", "A-1 1"]


def test_what_the_policy_hides_is_not_shown():
    shop = Shop(policy=hr.Policy(max_permission="read"))
    shop.do()
    assert shop.shown == [["read_result"]]


# ---------------------------------------------------------------------- approvals


@pytest.mark.parametrize(("word", "paid", "told"), [
    (True, ["A-1 900"], "paid 900"),
    (ToolApproved(override_args={"order": "A-1", "amount": 5}), ["A-1 5"], "paid 5"),
    (ToolDenied("too much"), [], "too much"),
    (False, [], "denied"),
])  # fmt: skip
def test_a_word_is_carried_out_and_no_question_stays_open(word, paid, told):
    shop = Shop(BIG)
    asked = shop.do()
    assert asked.metadata["call_1"]["arguments"] == {"order": "A-1", "amount": 900}
    assert shop.paid == []
    assert shop.resume(word) == "Done."
    assert shop.paid == paid
    assert told in shop.texts()[0]
    assert shop.questions() == []


@pytest.mark.parametrize("names_it", [False, True])
def test_a_word_on_a_tool_that_has_changed_since_asks_anew(names_it):
    shop = Shop(BIG)
    shown = shop.do().metadata["call_1"]["question"]
    shop.runtime.tools.redeclare("pay", description="Pay, and close the account.")
    asked = shop.resume(True, **({"question": shown} if names_it else {}))
    assert shop.paid == []
    assert asked.metadata["call_1"]["description"] == "Pay, and close the account."
    assert asked.metadata["call_1"]["question"] != shown


def test_a_word_on_the_question_of_another_call_decides_nothing():
    shop = Shop(BIG)
    shop.do()
    asked = shop.resume(True, question="a_0123456789abcdef")
    assert asked.approvals
    assert shop.paid == []


def test_what_a_colleague_approved_in_the_queue_goes_on():
    shop = Shop(BIG)
    question = shop.do().metadata["call_1"]["question"]
    shop.runtime.blocking.approvals.approve(question, by="ben")
    shop.resume(True)
    assert shop.paid == ["A-1 900"]
    [used] = shop.questions("used")
    assert used.by == "ben"


def test_two_people_must_agree():
    policy = hr.Policy(rules=[hr.Rule("pay", "ask", required_approvals=2)])
    shop = Shop(BIG, policy=policy)
    shop.do()
    for by in ("anna", "Anna ", "ben"):
        assert shop.paid == []
        shop.resume(True, by=by)
    assert shop.paid == ["A-1 900"]


# ---------------------------------------------------------------------- adopted tools


class Existing:
    def __init__(self, error=None):
        self.created: list[str] = []
        self.error = error
        self.toolset = FunctionToolset([self.create_ticket])

    def create_ticket(self, title: str) -> str:
        """Create a ticket."""
        self.created.append(title)
        if self.error:
            raise self.error
        return f"created {title}"


TICKET = asks_for("create_ticket", {"title": "late"})
AGAIN = asks_for("create_ticket", {"title": "late"}, first=2)
DECLARED = {"create_ticket": {"effect": "write", "key": "ticket:{title}"}}


def test_an_adopted_write_happens_once():
    existing = Existing()
    shop = Shop(TICKET, AGAIN, own=[], toolset={"wrapped": existing.toolset, "declare": DECLARED})  # fmt: skip
    shop.do()
    assert existing.created == ["late"]
    assert ["created late" in text for text in shop.texts()] == [True, True]


def test_an_adopted_tool_asks():
    existing = Existing()
    declare = {"create_ticket": {"effect": "write", "approve": True}}
    shop = Shop(TICKET, own=[], toolset={"wrapped": existing.toolset, "declare": declare})  # fmt: skip
    shop.do()
    assert existing.created == []
    shop.resume(True)
    assert existing.created == ["late"]


def test_an_adopted_write_whose_answer_is_lost_is_in_doubt():
    existing = Existing(ConnectionError("lost"))
    shop = Shop(TICKET, AGAIN, own=[], toolset={"wrapped": existing.toolset, "declare": DECLARED})  # fmt: skip
    shop.do()
    assert existing.created == ["late"]
    assert all("IN_DOUBT" in text for text in shop.texts())


def test_a_retry_that_an_adopted_read_asks_for_is_pydantic_ais():
    existing = Existing(ModelRetry("another title"))
    declare = {"create_ticket": {"effect": "read"}}
    shop = Shop(TICKET, own=[], toolset={"wrapped": existing.toolset, "declare": declare})  # fmt: skip
    shop.do()
    assert "another title" in str(shop.texts()[0])


def test_a_declaration_for_no_tool_is_refused():
    shop = Shop(own=[], toolset={"wrapped": Existing().toolset, "declare": {"create_tiket": {}}})  # fmt: skip
    with pytest.raises(hr.ConfigError, match="names 'create_tiket'"):
        shop.do()


# ---------------------------------------------------------------------- progress, endings, order


def test_progress_arrives_in_the_event_stream_under_its_call():
    @hr.tool(effect="read")
    def count(context: hr.Context) -> str:
        """Count."""
        for number in (1, 2):
            context.progress(number, 2, "counting")
        return "counted"

    async def main():
        seen = []
        async with shop.agent.iter("Count.", conversation_id="t") as run:
            async for node in run:
                if not Agent.is_call_tools_node(node):
                    continue
                async with node.stream(run.ctx) as events:
                    seen += [each async for each in events if isinstance(each, ToolProgress)]  # fmt: skip
        return [(each.tool_call_id, each.done, each.note) for each in seen]

    shop = Shop(asks_for("count", {}), own=[count])
    assert asyncio.run(main()) == [("call_1", 1, "counting"), ("call_1", 2, "counting")]


def test_a_circle_ends_the_run_with_its_reason():
    looks = []

    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        looks.append(1)
        return "seen"

    turns = [asks_for("look", {}, first=number) for number in range(1, 9)]
    with pytest.raises(AgentRunError, match="look"):
        Shop(*turns, own=[look]).do()
    assert len(looks) == 2


def test_a_budget_that_is_used_up_ends_the_run_with_its_reason():
    turns = [asks_for("pay", {"order": str(n)}, first=n) for n in range(1, 9)]
    shop = Shop(*turns, budget=hr.Budget(calls=3))
    with pytest.raises(AgentRunError, match="3 calls"):
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
    with pytest.raises(AgentRunError, match="1 call"):
        shop.do()
    assert done == ["A-1"]


def test_eight_calls_on_one_resource_keep_the_models_order():
    lines = []

    @hr.tool(effect="write", resource="log", write=hr.Write(repeatable=True))
    def append(line: int) -> str:
        """Append a line."""
        lines.append(line)
        return "appended"

    for _ in range(40):
        Shop(asks_for("append", *({"line": n} for n in range(8))), own=[append]).do()
    assert lines == [*range(8)] * 40


def test_a_call_of_an_answer_that_was_cut_does_not_run():
    cut = asks_for("pay", {"order": "A-1"})
    cut.finish_reason = "length"
    shop = Shop(cut)
    shop.do()
    assert shop.paid == []
    assert "TRUNCATED_CALL" in shop.texts()[0]
