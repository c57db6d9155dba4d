"""Many clients of one gateway at once: each hears what is its own, and nothing of the others."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from handrail_mcp.tokens import make_entry
from tests.handrail_mcp.gateways import MANY, agree, serve_gateway, write_config
from tests.handrail_mcp.reaching import NEW, OLD, ROOT, listens, text_of, wait_until
from tests.support.effort import volume

pytestmark = [pytest.mark.slow, volume]

CLIENTS = 16


@asynccontextmanager
async def client_of(url, mode=OLD, token="", **how):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=120))  # fmt: skip
        target = streamable_http_client(url, http_client=http)
        yield await stack.enter_async_context(Client(target, mode=mode, **how))


class Listener:
    """A client's person and what they hear: each answers with their own name."""

    def __init__(self, name):
        self.name = name
        self.asked = []
        self.logs = []
        self.progress = []

    async def fill_in(self, _, params):
        self.asked.append(params.message)
        await asyncio.sleep(0.01)
        return types.ElicitResult(action="accept", content={"color": self.name})

    async def log(self, params):
        self.logs.append(params.data)

    async def take_progress(self, done, total, message):
        self.progress.append(message)


@pytest.fixture
def many_at_http(tmp_path):
    """Start the server of many over HTTP; return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "tests.handrail_mcp.many", "http", str(port)]  # fmt: skip
    env = {**os.environ, "MANY_NAME": "one", "MANY_EFFECTS": str(tmp_path / "effects")}
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    wait_until(lambda: listens(port))
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait(20)


@pytest.mark.parametrize("mode", [OLD, NEW])
@pytest.mark.parametrize("upstream", ["stdio", "http"])
def test_each_of_many_clients_hears_what_is_its_own(tmp_path, mode, upstream, many_at_http):  # fmt: skip
    where = MANY if upstream == "stdio" else many_at_http
    config = write_config(tmp_path, {"one": where})
    agree(config)

    async def use(url, number):
        me = Listener(f"client-{number}")
        can_ask = number % 2 == 0
        how = {"elicitation_callback": me.fill_in} if can_ask else {}
        async with client_of(url, mode, logging_callback=me.log, **how) as client:
            await client.list_tools()
            calls = []
            for turn in range(4):
                text = f"{me.name}/{turn}"
                calls.append(
                    client.call_tool("one_report", {"text": text}, progress_callback=me.take_progress)
                )  # fmt: skip
            if can_ask and mode == OLD:
                calls.append(client.call_tool("one_ask_color", {}))
            answers = [text_of(each) for each in await asyncio.gather(*calls)]
        return me, answers

    async def main():
        with serve_gateway(config) as (url, _):
            return await asyncio.gather(*(use(url, each) for each in range(CLIENTS)))

    for me, answers in asyncio.run(main()):
        own = {f"{me.name}/{turn}" for turn in range(4)}
        assert set(answers[:4]) == own
        assert set(me.progress) <= own
        assert {str(each) for each in me.logs} <= own
        if len(answers) == 5:
            assert answers[4] == f"accept: {me.name}"
            assert len(me.asked) == 1
        else:
            assert me.asked == []


def test_a_client_that_hangs_up_takes_nothing_from_the_others(tmp_path):
    config = write_config(tmp_path, {"one": MANY})
    agree(config)

    async def hang_up(url):
        async with client_of(url) as client:
            await client.list_tools()
            call = asyncio.ensure_future(client.call_tool("one_speak", {"text": "x", "seconds": 30.0}))  # fmt: skip
            await asyncio.sleep(0.3)
            call.cancel()

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url) as stays:
                await stays.list_tools()
                mine = {"text": "mine", "seconds": 1.0}
                call = asyncio.ensure_future(stays.call_tool("one_speak", mine))
                await asyncio.gather(*(hang_up(url) for _ in range(3)))
                assert text_of(await call) == "mine"
                assert text_of(await stays.call_tool("one_speak", {"text": "still"})) == "still"  # fmt: skip

    asyncio.run(main())


def test_two_tenants_share_neither_results_nor_connections(tmp_path):
    entries = [make_entry("anna", "acme"), make_entry("bert", "other")]
    (tmp_path / "tokens.toml").write_text("".join(each.text for each in entries))
    config = write_config(tmp_path, {"one": MANY})
    agree(config)

    async def main():
        tokens = ("--tokens", str(tmp_path / "tokens.toml"))
        with serve_gateway(config, *tokens) as (url, _):
            async with (
                client_of(url, NEW, entries[0].token) as anna,
                client_of(url, NEW, entries[1].token) as bert,
            ):
                for client, name in ((anna, "anna"), (bert, "bert")):
                    answer = await client.call_tool("one_remember", {"text": name})
                    assert text_of(answer) == name
                large = await anna.call_tool("one_large", {})
                handle = large.content[0].text.split("handle='")[1].split("'")[0]
                given = {"handle": handle, "offset": 300_000}
                assert not (await anna.call_tool("read_result", given)).is_error
                assert (await bert.call_tool("read_result", given)).is_error
                for client in (anna, bert):
                    # one key of each, which are two acts
                    meta = {"handrail/idempotency-key": "k"}
                    await client.call_tool("one_send", {"to": "X"}, meta=meta)
            with pytest.raises((MCPError, ExceptionGroup)):
                async with client_of(url, NEW) as stranger:
                    await stranger.list_tools()

    asyncio.run(main())
    assert (tmp_path / "effects").read_text().splitlines() == ["send X", "send X"]


def test_foreign_hosts_and_origins_are_refused(tmp_path):
    config = write_config(tmp_path, {"one": MANY})
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    with serve_gateway(config) as (url, _):
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            answer = httpx2.post(url, json=ping, headers={**accept, **headers})
            assert answer.status_code in (403, 421), headers


@pytest.mark.parametrize("mode", [OLD, NEW])
def test_an_old_server_is_told_what_its_client_can_be_asked_while_it_waits(
    tmp_path, mode
):
    rogue = [sys.executable, "-m", "tests.handrail_mcp.rogue", "capabilities"]
    config = write_config(tmp_path, {"one": rogue})
    agree(config)
    me = Listener("me")

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url, mode, elicitation_callback=me.fill_in) as client:
                await client.list_tools()
                return text_of(await client.call_tool("one_act", {}))

    # a newer client is asked by the answer to its call, which such a server cannot give
    assert ("elicitation" in asyncio.run(main())) == (mode == OLD)


def test_one_key_at_two_gateways_at_one_moment_is_one_effect(tmp_path):
    config = write_config(tmp_path, {"one": MANY})
    agree(config)

    async def main():
        async with AsyncExitStack() as stack:
            clients = []
            for _ in range(2):
                url, _ = stack.enter_context(serve_gateway(config))
                client = await stack.enter_async_context(client_of(url, NEW))
                await client.call_tool("one_speak", {"text": "here"})
                clients.append(client)
            return await asyncio.gather(
                *(
                    client.call_tool(
                        "one_slow",
                        {"to": f"{number}", "seconds": 0.05},
                        meta={"handrail/idempotency-key": f"key-{number}"},
                    )
                    for number in range(10)
                    for client in clients
                )
            )

    answers = asyncio.run(main())
    assert not any(each.is_error for each in answers)
    done = (tmp_path / "effects").read_text().splitlines()
    assert sorted(done) == [f"slow {number}" for number in range(10)]


@pytest.mark.parametrize("mode", [OLD, NEW])
def test_a_question_that_another_process_answers_lets_the_call_run_once(tmp_path, mode):
    ask = '[[gateway.rules]]\ntool = "*send"\nthen = "ask"'
    config = write_config(tmp_path, {"one": MANY}, ask)
    agree(config)
    store = f"sqlite:///{tmp_path}/gateway.db"
    approve = [sys.executable, "-m", "handrail", "approvals", "approve"]

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url, mode) as client:
                asked = await client.call_tool("one_send", {"to": "Ann"})
                assert asked.structured_content["error_code"] == "APPROVAL_PENDING"
                assert not (tmp_path / "effects").exists()
                question = asked.structured_content["question"]
                words = [*approve, question, "--store", store]
                subprocess.run(words, check=True, cwd=ROOT, capture_output=True)
                other = await client.call_tool("one_send", {"to": "Eve"})
                assert other.structured_content["error_code"] == "APPROVAL_PENDING"
                for _ in range(2):
                    answer = await client.call_tool("one_send", {"to": "Ann"})
                    assert not answer.is_error

    asyncio.run(main())
    assert (tmp_path / "effects").read_text().splitlines() == ["send Ann"]


def test_texts_of_results_steer_no_terminal(tmp_path):
    config = write_config(tmp_path, {"one": MANY})
    agree(config)

    async def main():
        with serve_gateway(config) as (url, _):
            async with client_of(url) as client:
                text = "a\x1b[2Jb\x9b1m\tc\r\nd"
                return await client.call_tool("one_speak", {"text": text})

    answer = asyncio.run(main())
    assert text_of(answer).isprintable()
    assert answer.structured_content == {"result": "ab1m\tc\r\nd"}
