"""A server of tools over stdio and HTTP, in both kinds of revisions, reached by the official client."""

import asyncio
from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.handrail_mcp.reaching import (
    CLOSE,
    NEW,
    OLD,
    Person,
    Shop,
    accept,
    code_of,
    serve_shop,
    text_of,
    wait_until,
)
from tests.handrail_mcp.shop import SECRET

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module", params=["stdio", "http"])
def address(request, folder):
    if request.param == "stdio":
        yield ""
    else:
        with serve_shop(folder) as url:
            yield url


@pytest.fixture(params=[OLD, NEW])
def shop(request, folder, address):
    return Shop(folder, request.param, address)


@pytest.fixture(scope="module")
def url(folder):
    with serve_shop(folder) as url:
        yield url


@pytest.fixture(params=[OLD, NEW])
def http_shop(request, folder, url):
    """The shop over HTTP: a process for each test of what does not depend on the transport would take minutes."""
    return Shop(folder, request.param, url)


@pytest.fixture
def word():
    """A word that no other test has written."""
    return uuid4().hex[:12]


# ---------------------------------------------------------------------- listing and answers


async def test_tools_resources_and_prompts_are_listed_and_read(shop):
    async with shop.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        terms = await client.read_resource("shop://terms")
        prompt = await client.get_prompt("complain", {"order_id": "A-1"})
    assert tools["get_order"].annotations.read_only_hint
    assert not tools["refund"].annotations.read_only_hint
    assert "read_result" in tools
    assert "password" not in tools["fail"].input_schema.get("properties", {})
    assert terms.contents[0].text == "No returns."
    assert prompt.messages[0].content.text == "Complain about A-1."


async def test_a_value_is_text_and_structured_and_what_a_tool_prints_is_not_in_the_way(
    http_shop,
):
    async with http_shop.client() as client:
        result = await client.call_tool("get_order", {"order_id": "A-1"})
    assert not result.is_error
    assert result.structured_content == {"order_id": "A-1", "total": 20}
    assert text_of(result) == '{"order_id":"A-1","total":20}'


async def test_a_failure_says_what_to_do_and_holds_no_secret(http_shop):
    async with http_shop.client() as client:
        failed = await client.call_tool("fail", {})
        unknown = await client.call_tool("get_ordr", {"order_id": "A-1"})
        wrong = await client.call_tool("get_order", {"order": "A-1"})
    assert code_of(failed) == "INTERNAL_ERROR"
    assert SECRET not in text_of(failed)
    assert code_of(unknown) == "UNKNOWN_TOOL"
    assert "`get_order`" in unknown.structured_content["suggestion"]
    assert code_of(wrong) == "INVALID_ARGUMENTS"
    fields = {"success", "error_code", "error_message", "suggestion", "retryable"}
    assert fields <= wrong.structured_content.keys()
    assert wrong.structured_content["retryable"] is False


async def test_a_write_that_hangs_ends_in_doubt_and_lands_never(shop, word):
    async with shop.client() as client:
        result = await client.call_tool("hang", {"name": word})
    assert code_of(result) == "IN_DOUBT"
    assert shop.written("hung", word) == []


async def test_the_same_write_again_is_answered_and_not_done(shop, word):
    async with shop.client() as client:
        first = await client.call_tool("add_note", {"text": word})
        again = await client.call_tool("add_note", {"text": word})
    assert text_of(first) == f"noted {word}"
    assert text_of(again).startswith(f"noted {word}")
    assert shop.written("notes", word) == [word]


async def test_a_long_result_is_read_on_by_its_own_client_and_by_no_other(shop):
    async with shop.client() as client:
        result = await client.call_tool("list_rows", {"rows": 40_000})
        assert len(text_of(result)) < 20_000
        assert result.structured_content is None
        handle = text_of(result).partition("read_result(handle='")[2].partition("'")[0]
        rest = await client.call_tool(
            "read_result", {"handle": handle, "pattern": "row 20000 "}
        )
    assert "row 20000 " in text_of(rest)
    async with shop.client(name="another") as other:
        refused = await other.call_tool("read_result", {"handle": handle})
    assert code_of(refused) == "UNKNOWN_HANDLE"


async def test_a_long_result_of_a_call_with_a_key_is_read_on_too(http_shop, word):
    async with http_shop.client() as client:
        result = await client.call_tool(
            "list_rows", {"rows": 1000}, meta={"handrail/idempotency-key": word}
        )
        handle = text_of(result).partition("read_result(handle='")[2].partition("'")[0]
        rest = await client.call_tool("read_result", {"handle": handle})
    assert not rest.is_error


# ---------------------------------------------------------------------- approval


async def test_a_person_at_the_client_who_agrees_lets_the_call_run(shop, word):
    person = Person([accept(approve=True)])
    async with shop.client(person) as client:
        result = await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert text_of(result) == "refunded 5"
    assert shop.written("refunds", word) == [f"{word} 5"]
    (shown,) = person.shown
    assert word in shown
    assert "risk high" in shown


async def test_a_person_who_refuses_keeps_it_from_running_and_says_why(shop, word):
    person = Person([accept(approve=False, reason="it was eaten")])
    async with shop.client(person) as client:
        result = await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert code_of(result) == "NOT_APPROVED"
    assert "it was eaten" in text_of(result)
    assert shop.written("refunds", word) == []


async def test_a_person_may_edit_the_arguments(shop, word):
    edited = f'{{"order_id": "{word}", "amount": 3}}'
    person = Person([accept(approve=True, arguments=edited)])
    async with shop.client(person) as client:
        await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert shop.written("refunds", word) == [f"{word} 3"]


async def test_an_edit_that_cannot_be_read_runs_nothing(http_shop, word):
    broken = accept(approve=True, arguments="{amount: 3")
    person = Person([broken, broken, broken])
    async with http_shop.client(person) as client:
        result = await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert code_of(result) == "APPROVAL_PENDING"
    assert http_shop.written("refunds", word) == []


async def test_an_edit_that_does_not_fit_the_tool_runs_nothing(http_shop, word):
    person = Person([accept(approve=True, arguments='{"amount": "all"}')] * 3)
    async with http_shop.client(person) as client:
        result = await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert code_of(result) == "APPROVAL_PENDING"
    assert "The tool does not take what you wrote" in person.shown[1]
    assert http_shop.written("refunds", word) == []


async def test_a_form_that_was_closed_is_no_answer_and_another_process_may_give_one(
    shop, word
):
    person = Person([CLOSE])
    async with shop.client(person) as client:
        waiting = await client.call_tool("refund", {"order_id": word, "amount": 5})
        assert code_of(waiting) == "APPROVAL_PENDING"
        question = waiting.structured_content["question"]
        assert question in text_of(waiting)
        with shop.elsewhere() as elsewhere:
            elsewhere.approvals.approve(question, by="ben")
        result = await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert text_of(result) == "refunded 5"
    assert shop.written("refunds", word) == [f"{word} 5"]


async def test_a_client_that_cannot_ask_is_not_asked_and_reads_that_the_call_waits(
    shop, word
):
    async with shop.client() as client:
        result = await client.call_tool("refund", {"order_id": word, "amount": 5})
    assert code_of(result) == "APPROVAL_PENDING"
    assert result.structured_content["question"]
    assert shop.written("refunds", word) == []


async def test_where_two_must_agree_the_person_at_the_client_is_one_of_them(shop, word):
    person = Person([accept(approve=True)])
    async with shop.client(person) as client:
        waiting = await client.call_tool("close_shop", {"reason": word})
        assert code_of(waiting) == "APPROVAL_PENDING"
        with shop.elsewhere() as elsewhere:
            elsewhere.approvals.approve(
                waiting.structured_content["question"], by="ben"
            )
        result = await client.call_tool("close_shop", {"reason": word})
    assert text_of(result) == "closed"
    assert len(person.shown) == 1
    assert shop.written("closed", word) == [word]


# ---------------------------------------------------------------------- while the call runs


async def test_progress_and_log_lines_arrive_before_the_result(shop, word):
    heard = []

    async def hear(done, total, note):
        heard.append((done, total, note))

    async with shop.client() as client:
        result = await client.call_tool(
            "count", {"upto": 3, "name": word}, progress_callback=hear
        )
        assert heard == [(n, 3, f"at {n}") for n in range(3)]
    assert text_of(result) == "3"


async def test_half_a_character_costs_no_client_an_answer(http_shop):
    heard = []

    async def hear_progress(done, total, note):
        heard.append(note)

    async def hear_line(line):
        heard.append(line.data)

    async with http_shop.client(
        logging_callback=hear_line, log_level="warning"
    ) as client:
        result = await client.call_tool("cut", {}, progress_callback=hear_progress)
    assert result.structured_content["error_message"] == "cut ?"
    assert "cut ?" in text_of(result)
    assert set(heard) == {"cut ?"}


async def test_log_lines_of_a_tool_reach_a_client_that_takes_them(http_shop):
    lines = []

    async def hear(line):
        lines.append((line.level, line.data))

    async with http_shop.client(logging_callback=hear, log_level="warning") as client:
        await client.call_tool("greet", {})
        if http_shop.mode == OLD:
            with pytest.warns(MCPDeprecationWarning):
                await client.set_logging_level("error")
            await client.call_tool("greet", {})
    assert lines == [("warning", "about to ask")]


async def test_a_client_that_gives_up_stops_the_tool(shop, word):
    async with shop.client() as client:
        # a server that is still starting would not even begin a call that was withdrawn
        await client.list_tools()
        with pytest.raises(MCPError):
            await client.call_tool(
                "count", {"upto": 5000, "name": word}, read_timeout_seconds=0.3
            )
        await asyncio.to_thread(wait_until, lambda: shop.written("cancelled", word))


async def test_a_tool_asks_its_caller_and_starts_anew_where_it_must(http_shop):
    person = Person([accept(name="Anna"), accept(town="Ulm")])
    async with http_shop.client(person) as client:
        result = await client.call_tool("greet", {})
    assert text_of(result) == "Good day, Anna of Ulm."
    assert person.shown == ["What is your name?", "Where are you?"]


async def test_a_write_that_asks_before_it_writes_is_approved_once_and_done_once(
    shop, word
):
    person = Person([accept(approve=True), accept(gift="a hat")])
    async with shop.client(person) as client:
        result = await client.call_tool("send_gift", {"order_id": word})
    assert text_of(result) == "sent a hat"
    assert [shown.partition("\n")[0] for shown in person.shown] == [
        "`send_gift` wants to run (send_gift has high risk; risk high):",
        "What gift?",
    ]
    assert shop.written("gifts", word) == [f"{word} a hat"]


async def test_an_answer_that_is_not_what_was_asked_for_is_refused(http_shop):
    person = Person([accept(name="A" * 21)])
    async with http_shop.client(person) as client:
        result = await client.call_tool("greet", {})
    assert code_of(result) == "INVALID_ANSWER"


async def test_a_tool_that_asks_a_client_without_a_person_says_so(http_shop):
    async with http_shop.client() as client:
        result = await client.call_tool("greet", {})
    assert code_of(result) == "CANNOT_ASK"


async def test_sixty_four_calls_at_once_get_each_its_own_answer(shop, word):
    person = Person([accept(approve=True)] * 16)
    async with shop.client(person) as client:
        results = await asyncio.gather(
            *(
                client.call_tool("add_note", {"text": f"{word} {number}"})
                if number % 4
                else client.call_tool("refund", {"order_id": word, "amount": number})
                for number in range(64)
            )
        )
    for number, result in enumerate(results):
        assert str(number) in text_of(result)
        assert not result.is_error
    assert len(shop.written("notes", word)) == 48
    assert len(shop.written("refunds", word)) == 16
