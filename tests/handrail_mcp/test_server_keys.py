"""Keys that clients give their calls: the same act over new connections, other processes and kills is done once."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPError

from tests.handrail_mcp.reaching import (
    NEW,
    OLD,
    Shop,
    code_of,
    serve_shop,
    text_of,
    wait_until,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def word():
    return uuid4().hex[:12]


@pytest.fixture(params=[OLD, NEW])
def shop(request, tmp_path):
    return Shop(tmp_path, request.param)


def keyed(key: str) -> dict[str, str]:
    return {"handrail/idempotency-key": key}


async def test_one_key_in_two_processes_is_one_act_with_one_answer(shop, word):
    answers = []
    for _ in range(2):
        async with shop.client() as client:
            result = await client.call_tool(
                "add_note", {"text": word}, meta=keyed("note-1")
            )
            answers.append(text_of(result))
    assert shop.written("notes", word) == [word]
    assert answers[0] == f"noted {word}"
    assert answers[1].startswith(answers[0])


async def test_two_keys_are_two_acts_in_one_session(shop, word):
    async with shop.client() as client:
        for key in ("note-1", "note-2"):
            await client.call_tool("add_note", {"text": word}, meta=keyed(key))
    assert shop.written("notes", word) == [word, word]


async def test_one_key_with_other_arguments_is_refused(shop, word):
    async with shop.client() as client:
        await client.call_tool("add_note", {"text": word}, meta=keyed("note-1"))
        result = await client.call_tool(
            "add_note", {"text": word + "!"}, meta=keyed("note-1")
        )
    assert code_of(result) == "IDEMPOTENCY_KEY_REUSED"
    assert shop.written("notes", word) == [word]


@pytest.mark.parametrize("key", ["", "a\nb", "k" * 256, 7])
async def test_what_is_no_key_is_an_error_and_runs_nothing(tmp_path, word, key):
    shop = Shop(tmp_path, NEW)
    async with shop.client() as client:
        with pytest.raises(MCPError, match="no idempotency key"):
            await client.call_tool("add_note", {"text": word}, meta=keyed(key))
    assert shop.written("notes", word) == []


async def test_the_header_is_a_key_too_and_all_connections_know_it(tmp_path, word):
    with serve_shop(tmp_path) as url:
        for mode in (OLD, NEW):
            shop = Shop(tmp_path, mode, url)
            async with shop.client(headers={"Idempotency-Key": "note-1"}) as client:
                await client.call_tool("add_note", {"text": word})
    assert shop.written("notes", word) == [word]


async def test_one_key_at_the_same_moment_in_two_processes_is_one_act(tmp_path, word):
    with serve_shop(tmp_path) as one, serve_shop(tmp_path) as other:

        async def send(number):
            shop = Shop(tmp_path, NEW, (one, other)[number % 2])
            async with shop.client(name=f"client {number}") as client:
                return await client.call_tool(
                    "add_note", {"text": word}, meta=keyed("note-1")
                )

        results = await asyncio.gather(*(send(number) for number in range(16)))
    assert Shop(tmp_path).written("notes", word) == [word]
    assert all(
        text_of(each).startswith(f"noted {word}") or code_of(each) == "IN_PROGRESS"
        for each in results
    )


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_write_that_its_client_gave_up_is_in_doubt_and_not_done_again(
    shop, word, transport
):
    with ExitStack() as stack:
        if transport == "http":
            shop.url = stack.enter_context(serve_shop(shop.folder))
        async with shop.client() as client:
            await client.list_tools()  # the program has started
            with pytest.raises(MCPError):
                await client.call_tool(
                    "slow_note",
                    {"text": word},
                    meta=keyed("note-1"),
                    read_timeout_seconds=1,
                )
        async with shop.client() as client:
            result = await client.call_tool(
                "slow_note", {"text": word}, meta=keyed("note-1")
            )
    assert code_of(result) == "IN_DOUBT"
    assert shop.written("notes", word) == [word]


# ---------------------------------------------------------------------- kill -9 in the middle


@pytest.mark.proof
@pytest.mark.parametrize(
    ("tool", "outcome"),
    [("slow_note", "IN_DOUBT"), ("slow_checked_note", "it is there")],
)
async def test_a_server_killed_in_a_write_leaves_one_effect_and_the_truth(
    shop, word, tool, outcome
):
    with pytest.raises((MCPError, ExceptionGroup)):
        async with shop.client() as client:
            calling = asyncio.create_task(
                client.call_tool(tool, {"text": word}, meta=keyed("note-1"))
            )
            await asyncio.to_thread(wait_until, lambda: shop.written("notes", word))
            kill_children()
            await calling
    async with shop.client() as client:
        result = await client.call_tool(tool, {"text": word}, meta=keyed("note-1"))
    assert outcome in text_of(result)
    assert shop.written("notes", word) == [word]


def kill_children() -> None:
    """Kill the servers that this process has started."""
    me = os.getpid()
    for child in Path(f"/proc/{me}/task/{me}/children").read_text().split():
        if "tests.handrail_mcp.shop" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)


async def test_a_key_may_hold_a_letter_that_nobody_sees(shop, word):
    """Hangul fillers are letters of Unicode, and no name of a run may hold one."""
    key = keyed("note\u3164\u115f\u1160\uffa01")
    for _ in range(2):
        async with shop.client() as client:
            result = await client.call_tool("add_note", {"text": word}, meta=key)
        assert text_of(result).startswith(f"noted {word}")
    assert shop.written("notes", word) == [word]
