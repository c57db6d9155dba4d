"""Programs of providers: who may call what, what counts as a turn, and what a provider is told."""

import asyncio
from dataclasses import replace

import pytest

import handrail as hr
from handrail.errors import ToolDefinitionError
from handrail.journal.codec import turn_as_json, turn_from_json
from handrail.messages import AssistantMessage, ToolMessage, Turn, UserMessage
from handrail.testing import ScriptedModel

RUNNER = {
    "anthropic": {"type": "code_execution_20260120", "name": "code_execution"},
    "openai-responses": {"type": "programmatic_tool_calling"},
}


def make_tools(made):
    @hr.tool(effect="read", limits=hr.Limits(callers=("direct", "program")))
    async def stock(item: str) -> dict[str, int]:
        """Look up how many there are."""
        made.append(item)
        return {"count": 3}

    @hr.tool(effect="write")
    async def order(item: str) -> str:
        """Order an item."""
        made.append(f"order {item}")
        return "ordered"

    @hr.tool(effect="read", limits=hr.Limits(callers=["program"]))
    async def prices() -> list[int]:
        """List all prices."""
        made.append("prices")
        return [1]

    return [stock, order, prices]


def asks(name, arguments="{}", program="", id="c1"):
    return Turn(calls=[hr.ToolCall(id, name, arguments, program)], finish="calls")


def run(tools, script, **how):
    model = ScriptedModel([*script, "Done."])
    return asyncio.run(hr.Runtime(tools).run("Go.", model=model, **how))


@pytest.mark.parametrize(("name", "program", "words"), [
    ("order", "p1", "A program may not call `order`"),
    ("prices", "", "Only a program may call `prices`"),
])  # fmt: skip
def test_a_call_of_whom_the_tool_does_not_name_is_refused_and_does_nothing(
    name, program, words
):
    made = []
    arguments = '{"item": "tea"}' if name == "order" else "{}"
    ended = run(make_tools(made), [asks(name, arguments, program)])
    [result] = [each for each in ended.messages if isinstance(each, ToolMessage)]
    assert result.result.failure.code == "NOT_PERMITTED"
    assert words in result.result.failure.message
    assert made == []


def test_callers_binds_a_model_s_calls_and_none_by_code_of_ours(tmp_path):
    made = []

    async def look(flow):
        return (await flow.call("prices")).text

    async def call_each():
        store = f"sqlite:///{tmp_path}/runs.db"
        async with hr.Runtime(make_tools(made), store=store) as runtime:
            assert (await runtime.call("stock", {"item": "tea"})).ok
            assert (await runtime.call("prices")).ok
            assert (await runtime.workflow(look, run_id="w1")).ok
            asked = [hr.ToolCall("c1", "prices", "{}")]
            return await runtime.calls(asked, run="r1")

    [refused] = asyncio.run(call_each())
    assert refused.failure.code == "NOT_PERMITTED"
    assert made == ["tea", "prices", "prices"]


def test_a_step_that_follows_by_rule_is_a_call_by_code():
    made = []
    [*_, prices] = make_tools(made)

    @hr.tool(effect="read", then=hr.Then(prices))
    async def look() -> str:
        """Look around."""
        return "looked"

    assert asyncio.run(hr.Runtime([look]).call("look")).ok
    assert made == ["prices"]


def test_handle_refuses_as_a_run_does():
    made = []
    item = {
        "type": "function_call",
        "call_id": "c1",
        "name": "order",
        "arguments": '{"item": "tea"}',
        "caller": {"type": "program", "caller_id": "p1"},
    }
    runtime = hr.Runtime(make_tools(made))
    [reply] = asyncio.run(
        runtime.handle({"output": [item]}, dialect="openai-responses")
    )
    assert "NOT_PERMITTED" in reply["output"]
    assert made == []


def test_a_program_of_thirty_calls_is_one_turn_and_no_circle():
    made = []
    calls = [asks("stock", '{"item": "tea"}', "p1", id=f"c{n}") for n in range(30)]
    ended = run(make_tools(made), calls, budget=hr.Budget(turns=2))
    assert ended.ok
    assert (len(made), ended.spent.turns) == (30, 2)


def test_a_program_may_make_a_call_that_the_model_has_made_again_and_again():
    made = []
    tea = '{"item": "tea"}'
    script = [asks("stock", tea, id="c1"), asks("stock", tea, id="c2")]
    ended = run(make_tools(made), [*script, asks("stock", tea, "p1", id="c3")])
    assert ended.ok
    assert len(made) == 3


def test_an_equal_write_of_a_program_is_done_once_unless_it_is_repeatable():
    made = []

    @hr.tool(effect="write", limits=hr.Limits(callers=("program",)))
    async def add(item: str) -> str:
        """Add an item."""
        made.append(item)
        return "added"

    calls = [asks("add", '{"item": "a"}', "p1", id=f"c{n}") for n in range(2)]
    assert run([add], calls).ok
    assert made == ["a"]
    assert run([add.replace(write=hr.Write(repeatable=True))], calls).ok
    assert made == ["a", "a", "a"]


def test_glued_calls_of_a_program_are_calls_of_that_program():
    made = []

    @hr.tool(effect="read")
    async def look(item: str) -> str:
        """Look at an item."""
        made.append(item)
        return item

    ended = run([look], [asks("look", '{"item": "a"}{"item": "b"}', "p1")])
    codes = [
        each.result.failure.code
        for each in ended.messages
        if isinstance(each, ToolMessage)
    ]
    assert codes == ["NOT_PERMITTED", "NOT_PERMITTED"]
    assert made == []


def test_a_repaired_call_of_a_program_goes_back_as_the_program_s():
    ended = run(make_tools([]), [asks("stock", "{'item': 'tea'}", "p1")])
    [call] = [
        call
        for message in ended.messages
        if isinstance(message, AssistantMessage)
        for call in message.turn.calls
    ]
    assert (call.arguments, call.program) == ('{"item":"tea"}', "p1")


def test_a_second_program_is_a_turn_of_its_own():
    calls = [asks("stock", '{"item": "tea"}', f"p{n}", id=f"c{n}") for n in range(3)]
    assert run(make_tools([]), calls).spent.turns == 4


def test_the_calls_of_a_program_count_in_the_budget():
    calls = [asks("stock", '{"item": "tea"}', "p1", id=f"c{n}") for n in range(9)]
    made = []
    ended = run(make_tools(made), calls, budget=hr.Budget(calls=4))
    assert (ended.status, len(made)) == ("budget", 4)


def test_a_journal_keeps_whose_call_it_is():
    turn = asks("stock", "{}", "p1")
    assert turn_from_json(turn_as_json(turn)).calls == tuple(turn.calls)
    direct = asks("stock")
    assert turn_as_json(direct)["calls"] == [["c1", "stock", "{}"]]
    assert turn_from_json(turn_as_json(direct)).calls == tuple(direct.calls)


def test_a_call_of_a_program_waits_for_a_person_and_the_program_goes_on_elsewhere(
    tmp_path,
):
    made = []

    def runtime():
        @hr.tool(effect="write", limits=hr.Limits(callers=("program",)), approve=True)
        async def pay(amount: int) -> str:
            """Pay."""
            made.append(amount)
            return "paid"

        return hr.Runtime(
            [pay, *make_tools(made)], store=f"sqlite:///{tmp_path}/runs.db"
        )

    script = [
        asks("pay", '{"amount": 5}', "p1"),
        asks("stock", '{"item": "tea"}', "p1", id="c2"),
        "Done.",
    ]
    model = ScriptedModel(script)

    async def first():
        async with runtime() as today:
            return await today.run("Pay.", model=model, run_id="r1")

    async def second():
        async with runtime() as tomorrow:
            [question] = await tomorrow.approvals.list()
            await tomorrow.approvals.approve(question.id, by="anna")
            return await tomorrow.resume("r1", model=model)

    assert asyncio.run(first()).status == "waiting"
    assert made == []
    ended = asyncio.run(second())
    assert ended.ok
    assert (made, ended.spent.turns) == ([5, "tea"], 2)


# ---------------------------------------------------------------------- what a provider is told


def definitions(wire, *, runs_programs=True, strict=False):
    options = hr.Options(
        strict=strict, provider_tools=[RUNNER[wire]] if runs_programs else []
    )
    body = hr.dialect(wire).encode_request(
        [UserMessage("?")], hr.Toolset(make_tools([])), options
    )
    return {each.get("name"): each for each in body["tools"]}


@pytest.mark.parametrize(("wire", "word"), [
    ("anthropic", "code_execution_20260120"),
    ("openai-responses", "programmatic"),
])  # fmt: skip
def test_the_provider_is_told_which_tools_a_program_may_call(wire, word):
    told = definitions(wire)
    assert told["stock"]["allowed_callers"] == ["direct", word]
    assert told["prices"]["allowed_callers"] == [word]
    assert "allowed_callers" not in told["order"]


@pytest.mark.parametrize("wire", RUNNER)
def test_without_the_provider_s_runner_nothing_of_it_is_sent(wire):
    for each in definitions(wire, runs_programs=False).values():
        assert not {"allowed_callers", "output_schema"} & {*each}


def test_a_program_learns_what_it_gets_also_of_a_failure():
    told = definitions("openai-responses")
    schema = told["stock"]["output_schema"]
    assert schema["type"] == "object"
    assert {"success", "error_code", "error_message"} <= {*schema["properties"]}
    assert "required" not in schema
    assert "output_schema" not in told["order"]


def test_what_a_program_may_call_is_not_sent_as_strict_to_anthropic():
    told = definitions("anthropic", strict=True)
    assert "strict" not in told["stock"]
    assert told["order"]["strict"] is True


def test_the_calls_of_a_program_whose_container_has_expired_are_told_as_the_model_s():
    content = [
        {"type": "text", "text": "I count."},
        {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {}},
        {
            "type": "tool_use",
            "id": "t1",
            "name": "stock",
            "input": {"item": "tea"},
            "caller": {"type": "code_execution_20260120", "tool_id": "s1"},
        },
    ]
    answer = {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "tool_use",
        "container": {"id": "box_1", "expires_at": "2026-01-01T00:00:00Z"},
    }
    anthropic = hr.dialect("anthropic")
    turn = anthropic.decode(answer)
    assert [each.program for each in turn.calls] == ["s1"]
    said = [
        UserMessage("?"),
        AssistantMessage(turn),
        ToolMessage(hr.ToolResult("t1", "stock", value="3", text="3")),
    ]
    tools = hr.Toolset(make_tools([]))
    before = replace(anthropic, clock=lambda: 0.0).encode_request(said, tools)
    assert before["container"] == "box_1"
    assert before["messages"][1]["content"] == content
    after = anthropic.encode_request(said, tools)
    assert "container" not in after
    _, assistant, results = after["messages"]
    assert [each["type"] for each in assistant["content"]] == ["text", "tool_use"]
    assert "caller" not in assistant["content"][1]
    assert [each["type"] for each in results["content"]] == ["tool_result", "text"]
    assert "did not go on" in results["content"][1]["text"]


def test_a_program_that_was_lost_after_its_first_round_is_told_so_once():
    """The usual case: it looks something up, then a write of it waits for a person until the container has expired."""
    caller = {"type": "code_execution_20260120", "tool_id": "s1"}
    started = {"type": "server_tool_use", "id": "s1", "name": "code_execution"}

    def answer(*blocks):
        return anthropic.decode({
            "type": "message",
            "role": "assistant",
            "content": list(blocks),
            "stop_reason": "tool_use",
            "container": {"id": "box_1", "expires_at": "2026-01-01T00:00:00Z"},
        })  # fmt: skip

    def use(id):
        return {
            "type": "tool_use",
            "id": id,
            "name": "stock",
            "input": {"item": id},
            "caller": caller,
        }

    def result(id):
        return ToolMessage(hr.ToolResult(id, "stock", value="3", text="3"))

    anthropic = hr.dialect("anthropic")
    said = [
        UserMessage("?"),
        AssistantMessage(answer({**started, "input": {}}, use("t1"))),
        result("t1"),
        AssistantMessage(answer(use("t2"))),
        result("t2"),
    ]
    sent = anthropic.encode_request(said, hr.Toolset(make_tools([])))["messages"]
    blocks = [block for message in sent[1:] for block in message["content"]]
    kinds = ["tool_use", "tool_result", "tool_use", "tool_result", "text"]
    assert [each["type"] for each in blocks] == kinds
    assert not any("caller" in each for each in blocks)


@pytest.mark.parametrize("callers", [(), ("everybody",), "direct", None])
def test_callers_that_there_are_not_are_refused(callers):
    with pytest.raises(ToolDefinitionError, match="callers"):
        hr.FunctionTool(
            lambda: 1, name="one", description="One.", limits=hr.Limits(callers=callers)
        )
