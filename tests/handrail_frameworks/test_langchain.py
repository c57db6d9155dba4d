"""LangChain agents and LangGraph under handrail: identity, approvals, adopted tools, progress, endings."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

pytest.importorskip("langchain", reason="needs the extra `frameworks`")

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

import handrail as hr
from handrail_frameworks.bench.on_langchain import ScriptedChat, as_message
from handrail_frameworks.bench.scenarios import ScriptedTurn
from handrail_frameworks.langchain import HandrailMiddleware

END = ScriptedTurn(text="Done.", finish="stop")


def asks_for(name, *arguments, first=1):
    calls = [
        (f"call_{number}", name, each if isinstance(each, str) else json.dumps(each))
        for number, each in enumerate(arguments, first)
    ]
    return ScriptedTurn(calls=calls)


class Shop:
    """An agent with tools of handrail, and what they did."""

    def __init__(self, *turns, way="ainvoke", saver=None, middleware=(), **settings):
        self.paid: list[str] = []
        self.way = way
        of_middleware = {
            name: settings.pop(name)
            for name in ("tools", "declare", "options", "whole_turns")
            if name in settings
        }
        self.text = settings.pop("text", "Pay for an order.")
        own = settings.pop("own", None)
        self.runtime = settings.pop("runtime", None) or hr.Runtime(
            self.tools() if own is None else own, **settings
        )
        self.middleware = HandrailMiddleware(self.runtime, **of_middleware)
        self.agent = create_agent(
            ScriptedChat(script=[*turns, END]),
            middleware=[*middleware, self.middleware],
            checkpointer=saver or InMemorySaver(),
        )

    def tools(self):
        def pay(order: str, amount: int = 1) -> str:
            self.paid.append(f"{order} {amount}")
            return f"paid {amount}"

        return [
            hr.FunctionTool(
                pay, description=self.text, effect="write", approve="amount > 100"
            )
        ]

    def do(self, given="Do it.", *, thread="t"):
        if isinstance(given, str):
            given = {"messages": [("user", given)]}
        config = {"configurable": {"thread_id": thread}}
        value = getattr(self.agent, self.way)(given, config)
        return asyncio.run(value) if asyncio.iscoroutine(value) else value

    def resume(self, *decisions, **more):
        return self.do(Command(resume={"decisions": list(decisions), **more}))

    def questions(self, state="open"):
        return self.runtime.blocking.approvals.list(state)


def texts(state):
    return [each.content for each in state["messages"] if isinstance(each, ToolMessage)]


def question_of(state):
    [interrupted] = state["__interrupt__"]
    [question] = interrupted.value["handrail"]
    return question


@pytest.fixture(params=["ainvoke", "invoke"])
def way(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["each call", "whole turns"])
def whole_turns(request):
    return request.param


BIG = asks_for("pay", {"order": "A-1", "amount": 900})
YES = {"type": "approve", "by": "anna"}
NO = {"type": "reject", "message": "too much"}

# ---------------------------------------------------------------------- identity


class NumbersAnew(ScriptedChat):
    """Gives the call of each question the same id."""

    def _generate(self, messages, *_, **__):
        questions = sum(isinstance(each, HumanMessage) for each in messages)
        if isinstance(messages[-1], ToolMessage):
            self.script = [END]
        else:
            self.script = [asks_for("pay", {"order": f"A-{questions}"})]
        message = as_message(self.script[0])
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_calls_of_two_questions_are_two_though_the_model_numbers_them_alike(way):
    shop = Shop(way=way)
    shop.agent = create_agent(
        NumbersAnew(script=[END]),
        middleware=[shop.middleware],
        checkpointer=InMemorySaver(),
    )
    shop.do("Pay A-1.")
    state = shop.do("Pay A-2.")
    assert shop.paid == ["A-1 1", "A-2 1"]
    assert texts(state) == ["paid 1", "paid 1"]


def test_an_unknown_name_is_answered_with_the_nearest_one(way):
    state = Shop(asks_for("paj", {"order": "A-1"}), way=way).do()
    assert "Did you mean `pay`?" in texts(state)[0]


def test_the_context_of_the_graph_is_what_tools_read_as_deps(way):
    seen = []

    @hr.tool(effect="read")
    def look(context: hr.Context) -> str:
        """Look."""
        seen.append((context.deps, context.run_id, context.call_id))
        return "seen"

    shop = Shop(asks_for("look", {}), way=way, own=[look])
    config = {"configurable": {"thread_id": "t"}}
    given = {"messages": [("user", "Look.")]}
    value = getattr(shop.agent, way)(given, config, context="the shop")
    if way == "ainvoke":
        asyncio.run(value)
    assert seen == [("the shop", "t", "call_1")]


def test_tenants_of_one_agent_share_nothing(way):
    shop = Shop(
        asks_for("pay", {"order": "A-1"}),
        way=way,
        options=lambda config: {
            "run": "same",
            "scope": config["configurable"]["thread_id"],
        },
    )
    shop.do(thread="acme")
    shop.do(thread="bolt")
    assert shop.paid == ["A-1 1", "A-1 1"]


def test_what_the_policy_hides_is_not_shown_to_the_model(way):
    shown = []

    class Chat(ScriptedChat):
        def bind_tools(self, tools, **_):
            shown.append(
                [
                    each["name"] if isinstance(each, dict) else each.name
                    for each in tools
                ]
            )
            return self

    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    shop = Shop(way=way, policy=hr.Policy(max_permission="read"))
    shop.runtime.tools.add(look)
    shop.agent = create_agent(
        Chat(script=[END]), middleware=[HandrailMiddleware(shop.runtime)]
    )
    shop.do()
    assert shown == [["look", "read_result"]]


# ---------------------------------------------------------------------- approvals


def test_a_question_has_the_form_of_langchains_own(way, whole_turns):
    state = Shop(BIG, way=way, whole_turns=whole_turns).do()
    [interrupted] = state["__interrupt__"]
    [action] = interrupted.value["action_requests"]
    assert (action["name"], action["args"]) == ("pay", {"order": "A-1", "amount": 900})
    assert interrupted.value["review_configs"][0]["allowed_decisions"] == [
        "approve",
        "edit",
        "reject",
    ]


@pytest.mark.parametrize(("decision", "paid", "told"), [
    (YES, ["A-1 900"], "paid 900"),
    ({"type": "edit", "edited_action": {"name": "pay", "args": {"order": "A-1", "amount": 5}}}, ["A-1 5"], "paid 5"),
    (NO, [], "too much"),
])  # fmt: skip
def test_a_decision_is_carried_out_and_no_question_stays_open(
    way, whole_turns, decision, paid, told
):
    shop = Shop(BIG, way=way, whole_turns=whole_turns)
    shop.do()
    assert shop.paid == []
    state = shop.resume(decision)
    assert shop.paid == paid
    assert told in texts(state)[0]
    assert shop.questions() == []


@pytest.mark.parametrize("resume", [None, Command(resume="whatever")])
def test_what_a_colleague_approved_in_the_queue_goes_on_with_any_resume(way, resume):
    shop = Shop(BIG, way=way)
    question = question_of(shop.do())
    shop.runtime.blocking.approvals.approve(question["question"], by="ben")
    shop.do(resume)
    assert shop.paid == ["A-1 900"]


NO_DECISION = [
    {"decisions": []},
    {"decisions": [{}, {}]},
    {"decisions": ["approve"]},
    {"approved": True},
    {"type": "accept"},  # as LangGraph's earlier review of calls had it
    {"type": "respond"},
    {"type": "edit"},
    {"type": "edit", "args": {"args": {"order": "A-1", "amount": 5}}},
    {"type": "edit", "edited_action": {"name": "pay"}},
    {"type": "edit", "edited_action": {"name": "refund", "args": {"amount": 5}}},
]


@pytest.mark.parametrize("answer", ["yes", True, *NO_DECISION])
def test_an_answer_that_decides_nothing_pays_nothing_and_is_asked_again(way, answer):
    shop = Shop(BIG, way=way)
    asked = question_of(shop.do())
    assert question_of(shop.do(Command(resume=answer))) == asked
    assert shop.paid == []
    shop.resume(YES)
    assert shop.paid == ["A-1 900"]


@pytest.mark.parametrize("names_it", [False, True])
def test_a_word_on_a_tool_that_has_changed_since_asks_anew(way, whole_turns, names_it):
    shop = Shop(BIG, way=way, whole_turns=whole_turns)
    shown = question_of(shop.do())["question"]
    shop.runtime.tools.redeclare("pay", description="Pay, and close the account.")
    word = {**YES, "question": shown} if names_it else YES
    state = shop.resume(word)
    assert shop.paid == []
    asked = question_of(state)
    assert asked["description"] == "Pay, and close the account."
    # the old word is not taken for the new question, however often the graph goes on
    assert question_of(shop.do(Command(resume={"decisions": [YES]}))) == asked
    assert shop.paid == []
    shop.resume({**YES, "question": asked["question"]})
    assert shop.paid == ["A-1 900"]


def test_two_people_must_agree(way):
    policy = hr.Policy(rules=[hr.Rule("pay", "ask", required_approvals=2)])
    shop = Shop(BIG, way=way, policy=policy)
    shop.do()
    for by in ("anna", "Anna ", "ben"):
        assert shop.paid == []
        shop.resume({**YES, "by": by})
    assert shop.paid == ["A-1 900"]


def test_the_siblings_of_a_call_that_waits_keep_their_results(way):
    shop = Shop(
        asks_for("pay", {"order": "A-1"}, {"order": "A-2", "amount": 900}), way=way
    )
    shop.do()
    assert shop.paid == ["A-1 1"]
    state = shop.resume(YES)
    assert shop.paid == ["A-1 1", "A-2 900"]
    assert texts(state) == ["paid 1", "paid 900"]


def test_calls_of_a_whole_turn_are_reviewed_together(way):
    turn = asks_for("pay", {"order": "A-1", "amount": 900}, {"order": "A-2", "amount": 901})  # fmt: skip
    shop = Shop(turn, way=way, whole_turns=True)
    [interrupted] = shop.do()["__interrupt__"]
    assert len(interrupted.value["action_requests"]) == 2
    state = shop.resume(NO, YES)
    assert shop.paid == ["A-2 901"]
    assert "too much" in texts(state)[0]


def test_a_resume_that_was_meant_for_another_node_is_no_word(way):
    @langchain_tool
    def ask() -> str:
        """Ask for something else."""
        return str(interrupt("another question"))

    first = ScriptedTurn(calls=[("a", "ask", "{}")])
    declare = {"ask": {"effect": "read"}}
    shop = Shop(first, BIG, way=way, tools=[ask], declare=declare)
    shop.do()
    state = shop.resume(YES)
    assert shop.paid == []
    assert question_of(state)["tool"] == "pay"


# ---------------------------------------------------------------------- adopted tools


class Existing:
    """Tools that an agent has already."""

    def __init__(self, *, is_async=False):
        self.created: list[str] = []
        self.fails = 0

        def create(title: str) -> str:
            self.created.append(title)
            if self.fails:
                self.fails -= 1
                raise ConnectionError("the answer was lost")
            return f"created {title}"

        async def create_async(title: str) -> str:
            return create(title)

        how = {"description": "Create a ticket."}
        if is_async:
            self.tool = langchain_tool("create_ticket", **how)(create_async)
        else:
            self.tool = langchain_tool("create_ticket", **how)(create)


TICKET = asks_for("create_ticket", {"title": "late"})
AGAIN = asks_for("create_ticket", {"title": "late"}, first=2)
DECLARED = {"create_ticket": {"effect": "write", "key": "ticket:{title}"}}


def test_an_adopted_write_happens_once_and_keeps_its_definition(way):
    existing = Existing(is_async=way == "ainvoke")
    shop = Shop(TICKET, AGAIN, way=way, own=[], tools=[existing.tool], declare=DECLARED)
    state = shop.do()
    assert existing.created == ["late"]
    assert texts(state)[0] == "created late"
    assert "created late" in texts(state)[1]
    assert existing.tool in shop.middleware.tools


def test_an_adopted_tool_asks_and_a_denial_is_told(way):
    existing = Existing(is_async=way == "ainvoke")
    declare = {"create_ticket": {"effect": "write", "approve": True}}
    shop = Shop(TICKET, way=way, own=[], tools=[existing.tool], declare=declare)
    shop.do()
    state = shop.resume(NO)
    assert existing.created == []
    assert "too much" in texts(state)[0]


def test_a_retrying_middleware_around_pays_once(way):
    existing = Existing(is_async=way == "ainvoke")
    existing.fails = 2
    retrying = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    shop = Shop(TICKET, way=way, own=[], tools=[existing.tool], declare=DECLARED, middleware=[retrying])  # fmt: skip
    state = shop.do()
    assert existing.created == ["late"]
    assert json.loads(texts(state)[0])["error_code"] == "IN_DOUBT"


@pytest.mark.parametrize(("interrupts", "times", "told"), [
    ("doubt", 1, "IN_DOUBT"),
    ("before", 2, "created"),
])  # fmt: skip
def test_an_interrupt_inside_a_write_enters_it_again_only_where_that_is_declared(
    way, interrupts, times, told
):
    entered = []

    @langchain_tool
    def create_ticket(title: str) -> str:
        """Create a ticket."""
        entered.append(title)
        return f"created for {interrupt('for whom?')}"

    declare = {"create_ticket": {"effect": "write"}}
    if interrupts == "before":
        declare["create_ticket"]["write"] = hr.Write(interrupts="before")
    shop = Shop(TICKET, way=way, own=[], tools=[create_ticket], declare=declare)
    assert shop.do()["__interrupt__"][0].value == "for whom?"
    state = shop.do(Command(resume="anna"))
    assert len(entered) == times
    assert told in texts(state)[0]


def test_a_command_of_an_adopted_tool_reaches_the_graph(way):
    @langchain_tool
    def hand_off() -> Command:
        """Hand off."""
        message = ToolMessage("handed off", tool_call_id="call_1")
        return Command(update={"messages": [message]})

    declare = {"hand_off": {"effect": "read"}}
    shop = Shop(asks_for("hand_off", {}), way=way, own=[], tools=[hand_off], declare=declare)  # fmt: skip
    assert texts(shop.do()) == ["handed off"]


def test_a_declaration_for_no_tool_is_refused_at_the_start():
    with pytest.raises(hr.ConfigError, match="names 'create_tiket'"):
        Shop(own=[], tools=[Existing().tool], declare={"create_tiket": {}})


def test_an_adopted_tool_without_a_declaration_is_a_write_that_a_person_approves(way):
    existing = Existing(is_async=way == "ainvoke")
    shop = Shop(TICKET, AGAIN, way=way, own=[], tools=[existing.tool])
    shop.do()
    assert existing.created == []
    shop.resume(YES)
    assert existing.created == ["late"]


# ---------------------------------------------------------------------- progress, endings, order


def test_progress_arrives_in_the_custom_stream_under_its_call(way):
    @hr.tool(effect="read")
    def count(context: hr.Context) -> str:
        """Count."""
        for number in (1, 2):
            context.progress(number, 2, "counting")
        return "counted"

    shop = Shop(asks_for("count", {}), way=way, own=[count])
    given = {"messages": [("user", "Count.")]}
    config = {"configurable": {"thread_id": "t"}}

    async def read():
        stream = shop.agent.astream(given, config, stream_mode="custom")
        return [each async for each in stream]

    if way == "ainvoke":
        pieces = asyncio.run(read())
    else:
        pieces = list(shop.agent.stream(given, config, stream_mode="custom"))
    assert [(each["tool_call_id"], each["done"]) for each in pieces] == [
        ("call_1", 1),
        ("call_1", 2),
    ]


def test_a_circle_ends_the_run_with_its_reason(way, whole_turns):
    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    turns = [asks_for("look", {}, first=number) for number in range(1, 9)]
    shop = Shop(*turns, way=way, own=[look], whole_turns=whole_turns)
    state = shop.do()
    assert len(texts(state)) == 3
    assert "look" in state["messages"][-1].content


def test_a_budget_that_is_used_up_ends_the_run_with_its_reason(way):
    turns = [asks_for("pay", {"order": str(n)}, first=n) for n in range(1, 9)]
    shop = Shop(*turns, way=way, budget=hr.Budget(calls=3))
    state = shop.do()
    assert shop.paid == ["1 1", "2 1", "3 1"]
    assert "3 calls" in state["messages"][-1].content


def test_eight_calls_on_one_resource_keep_the_models_order(way):
    lines = []

    @hr.tool(effect="write", resource="log", write=hr.Write(repeatable=True))
    def append(line: int) -> str:
        """Append a line."""
        lines.append(line)
        return "appended"

    turn = asks_for("append", *({"line": number} for number in range(8)))
    for number in range(40):
        Shop(turn, way=way, own=[append], whole_turns=True).do(thread=str(number))
    assert lines == [*range(8)] * 40


def test_sixty_four_updates_by_both_doors_lose_none():
    counter = {"count": 0}
    inside = threading.Semaphore(1)

    @hr.tool(effect="write", resource="counter", write=hr.Write(repeatable=True))
    def add() -> str:
        """Add one."""
        assert inside.acquire(blocking=False)
        before = counter["count"]
        threading.Event().wait(0.001)
        counter["count"] = before + 1
        inside.release()
        return "added"

    shop = Shop(asks_for("add", {}), own=[add])
    given = {"messages": [("user", "Add.")]}

    def config(number):
        return {"configurable": {"thread_id": str(number)}}

    async def main():
        here = [shop.agent.ainvoke(given, config(n)) for n in range(32)]
        there = [
            asyncio.to_thread(shop.agent.invoke, given, config(n))
            for n in range(32, 64)
        ]
        await asyncio.gather(*here, *there)

    asyncio.run(asyncio.wait_for(main(), 120))
    assert counter["count"] == 64


def test_a_thread_of_many_questions_is_not_refused_for_what_came_before():
    shop = Shop(budget=hr.Budget(calls=30), own=[])
    looks = []

    @hr.tool(effect="read")
    def look(number: int) -> str:
        """Look."""
        looks.append(number)
        return "seen"

    shop.runtime.tools.add(look)
    middleware = HandrailMiddleware(shop.runtime)
    saver = InMemorySaver()
    for question in range(20):
        first = question * 25 + 1
        turn = asks_for("look", *({"number": n} for n in range(first, first + 25)), first=first)  # fmt: skip
        model = ScriptedChat(script=[turn, END])
        shop.agent = create_agent(model, middleware=[middleware], checkpointer=saver)
        shop.do("Look.")
    assert sorted(looks) == list(range(1, 501))  # it reads side by side


@pytest.mark.parametrize("text", ['{"order": "A-1"', "{'order': 'A-1',}"])
def test_calls_whose_json_langchain_cannot_read_are_answered(way, text):
    state = Shop(asks_for("pay", text), way=way).do()
    assert len(texts(state)) == 1
    assert state["messages"][-1].content == "Done."


def test_the_audit_log_has_the_thread_and_the_models_ids(way, tmp_path):
    shop = Shop(asks_for("pay", {"order": "A-1"}), way=way, store=f"sqlite:///{tmp_path}/h.db")  # fmt: skip
    shop.do()
    records = shop.runtime.store.log().result(10)
    ends = [each for each in records if each.event == "CallFinished"]
    assert [(each.run_id, each.body["call"]) for each in ends] == [("t", "call_1")]
