"""Servers that misbehave: each ends in time, in one sentence that names it, and leaves no child behind.

The bounds of time are promises about deadlines, and generous: a limit, and a second for ending the child.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path

import pytest

import handrail as hr
from tests.handrail_mcp import rogue as rogue_program
from tests.handrail_mcp.test_client import READS, STDIO, is_alive

LIMIT_S = 3.0
BEYOND_S = 1.0
PATIENCE_S = 60.0
"""The time of a call that gets its answer, however many others compute."""
READ = {
    "act": {
        "effect": "read",
        "timeout_s": PATIENCE_S,
        "limits": hr.Limits(max_attempts=2),
    }
}
WRITE = {"act": {"effect": "write", "risk": "low", "timeout_s": PATIENCE_S}}
SHORT_READ = {"act": {**READ["act"], "timeout_s": LIMIT_S}}
SHORT_WRITE = {"act": {**WRITE["act"], "timeout_s": LIMIT_S}}

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.fixture
def rogue(effects):
    def connect(bad, overrides=READ, **options):
        command = [sys.executable, "-m", "tests.handrail_mcp.rogue", bad, str(effects)]
        options.setdefault("connect_s", PATIENCE_S)
        return hr.mcp.connect(command, name="rogue", overrides=overrides, **options)

    return connect


@pytest.fixture(autouse=True)
def no_child_is_left(tmp_path):
    yield
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit and children(tmp_path):
        time.sleep(0.02)
    assert children(tmp_path) == set()


def children(tmp_path):
    """Return the ids of the servers of this test that live, whoever is their parent by now."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            command = stat.with_name("cmdline").read_text()
            if str(tmp_path) in command and is_alive(int(stat.parent.name)):
                found.add(int(stat.parent.name))
    return found


def lines(effects):
    return effects.read_text().split("\n")[:-1] if effects.exists() else []


async def call(tools, **arguments):
    runtime = hr.Runtime(tools)
    try:
        return await runtime.call("rogue_act", arguments)
    finally:
        await runtime.close()


# ---------------------------------------------------------------------- at start


async def test_a_server_that_exits_at_once_is_named_with_its_code_and_last_words(rogue):
    with pytest.raises(hr.ConfigError) as raised:
        await rogue("exit")
    assert "the MCP server 'rogue' ended at once, with exit code 3" in str(raised.value)
    assert "boom: no such database" in str(raised.value)


async def test_a_command_that_does_not_exist_is_named():
    with pytest.raises(hr.ConfigError) as raised:
        await hr.mcp.connect("no-such-command-anywhere --stdio")
    assert "'no-such-command-anywhere'" in str(raised.value)
    assert "No such file" in str(raised.value)


async def test_a_silent_server_is_given_up_and_killed_though_it_ignores_sigterm(rogue):
    began = time.monotonic()
    with pytest.raises(hr.ConfigError) as raised:
        await rogue("silent", connect_s=1.0)
    assert str(raised.value).startswith(
        "the MCP server 'rogue' did not answer within 1 s"
    )
    assert time.monotonic() - began < 1.0 + BEYOND_S


async def test_somebody_who_gives_up_while_connecting_leaves_no_child(rogue):
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rogue("silent"), 0.5)
    assert time.monotonic() - began < 0.5 + 2 * BEYOND_S


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
async def test_a_daemon_of_a_server_ends_with_its_tools(rogue, tmp_path):
    async with await rogue("daemon") as tools:
        assert len(tools) == 1
        assert len(children(tmp_path)) == 3  # launcher, server and daemon
    assert children(tmp_path) == set()


async def test_nobody_listens_at_an_address():
    with pytest.raises(hr.ConfigError) as raised:
        await hr.mcp.connect(
            "http://user:secret@127.0.0.1:9/mcp?key=secret", name="far"
        )
    assert "the MCP server 'far' cannot be reached" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("bad", ["cursor", "endless"])
async def test_pages_without_end_are_refused(rogue, bad):
    with pytest.raises(hr.ConfigError) as raised:
        await rogue(bad)
    assert "the MCP server 'rogue' lists" in str(raised.value)


async def test_two_tools_of_one_name_are_both_left_out_with_a_sentence(rogue):
    async with await rogue("twins") as tools:
        assert len(tools) == 0
        assert (
            "'act' of 'rogue' is left out: another tool of it has the same name"
            in (tools.problems[0])
        )


async def test_a_schema_beyond_every_limit_leaves_its_tool_out(rogue):
    async with await rogue("huge-schema") as tools:
        assert len(tools) == 0
        assert "'act' of 'rogue' is left out" in tools.problems[0]


async def test_a_version_that_nobody_speaks_is_named(rogue):
    with pytest.raises(hr.ConfigError, match=r"cannot be used.*1999"):
        await rogue("version")


async def test_an_odd_tool_is_left_out_with_a_sentence_and_no_other(rogue):
    async with await rogue("odd-tool") as tools:
        assert (await call(tools)).value == "acted"
        assert tools.problems == [
            "'odd' of 'rogue' is left out: its `inputSchema` is missing, or cannot be read",
            "'act' of 'rogue' is used without its `title`, which cannot be read",
            "None of 'rogue' is left out: it is no object",
        ]


# ---------------------------------------------------------------------- during a call


async def test_a_write_that_is_answered_oddly_is_done(rogue, effects):
    async with await rogue("structured-only", WRITE) as tools:
        assert (await call(tools)).value == {"acted": True}
    assert lines(effects) == ["acted"]


@pytest.mark.parametrize("bad", rogue_program.ERRORS)
async def test_an_error_of_any_form_is_told_at_once_and_in_its_words(
    rogue, effects, bad
):
    async with await rogue(bad) as tools:
        result = await call(tools)
    assert result.failure.code == "SERVER_ERROR"
    assert "out of disk" in result.failure.message
    assert lines(effects) == ["acted"]


async def test_lines_that_are_no_messages_are_ignored_with_one_warning(rogue, caplog):
    async with await rogue("noise") as tools:
        assert (await call(tools)).value == "acted"
    warnings = [each for each in caplog.records if "no messages" in each.message]
    assert len(warnings) == 1
    assert "'rogue'" in warnings[0].getMessage()


async def test_answers_with_wrong_ids_are_dropped(rogue):
    async with await rogue("duplicates") as tools:
        assert (await call(tools)).value == "acted"


async def test_content_of_an_unknown_kind_is_said_to_be_so(rogue):
    async with await rogue("unknown-content") as tools:
        assert (await call(tools)).value == ["acted", "[unsupported content: hologram]"]


@pytest.mark.parametrize("overrides", [READ, WRITE], ids=["read", "write"])
async def test_half_a_character_does_not_cost_the_answer(rogue, effects, overrides):
    async with await rogue("half", overrides) as tools:
        assert (await call(tools)).value == {"?": ["?"]}
    assert lines(effects) == ["acted"]


async def test_an_answer_that_is_no_result_is_a_failure_that_names_the_server(rogue):
    async with await rogue("no-content") as tools:
        result = await call(tools)
    assert result.failure.code == "UNAVAILABLE"
    assert "The MCP server `rogue` sent an answer that is none of the protocol" in (
        result.failure.message
    )


async def test_a_read_is_tried_again_when_the_server_dies(rogue, effects):
    async with await rogue("die") as tools:
        result = await call(tools)
    assert lines(effects) == ["acted", "acted"]
    assert result.failure.code == "UNAVAILABLE"
    assert result.failure.message == (
        "The MCP server `rogue` ended before the answer was there, with exit code 9."
    )


@pytest.mark.parametrize("bad", ["die", "hang", "long-line", "no-content"])
async def test_a_write_without_an_answer_is_in_doubt_and_not_sent_again(
    rogue, effects, bad, tmp_path
):
    tools = await rogue(bad, SHORT_WRITE)
    runtime = hr.Runtime(tools, store=f"sqlite:///{tmp_path / 'runs.db'}")
    began = time.monotonic()
    first = await runtime.call("rogue_act", {"to": "x"}, run="r")
    assert time.monotonic() - began < LIMIT_S + BEYOND_S
    second = await runtime.call("rogue_act", {"to": "x"}, run="r")
    await runtime.close()
    assert first.failure.code == second.failure.code == "IN_DOUBT"
    assert "The MCP server `rogue`" in first.failure.message
    assert lines(effects).count("acted") == 1


async def test_a_write_that_failed_in_its_server_is_said_to_have_perhaps_happened(
    rogue,
):
    async with await rogue("error", WRITE) as tools:
        runtime = hr.Runtime(tools)
        first = await runtime.call("rogue_act", {"to": "x"}, run="r")
        second = await runtime.call("rogue_act", {"to": "x"}, run="r")
        await runtime.close()
    assert first.failure.code == "SERVER_ERROR"
    assert first.failure.suggestion.startswith(
        "It may have happened. Look whether it did before"
    )
    assert second.failure.code == "IN_DOUBT"


async def test_a_write_that_the_server_promises_to_know_again_is_sent_again(
    rogue, effects
):
    keyed = {"act": {"effect": "write", "risk": "low", "replay": "key"}}
    async with await rogue("die", keyed) as tools:
        result = await call(tools)
    assert lines(effects).count("acted") > 1
    assert result.failure.code == "IN_DOUBT"


async def test_a_server_that_hangs_is_told_that_nobody_waits(rogue, effects):
    async with await rogue("hang", SHORT_READ) as tools:
        link = tools.connection._current
        began = time.monotonic()
        result = await call(tools)
        assert time.monotonic() - began < LIMIT_S + BEYOND_S
    assert not link._asked  # what nobody waits for is not remembered
    assert result.failure.code == "TIMEOUT"
    assert "cancelled" in lines(effects)


async def test_progress_extends_the_silence_that_is_allowed_but_never_the_whole(rogue):
    async with await rogue("hang-with-progress", idle_s=0.5) as tools:
        began = time.monotonic()
        with pytest.raises(Exception, match="did not answer within 2 s"):
            await tools.connection.call("act", timeout_s=2.0)
        assert time.monotonic() - began < 2 + BEYOND_S


async def test_silence_ends_a_call_before_its_time(rogue):
    async with await rogue("hang", idle_s=0.5) as tools:
        with pytest.raises(Exception, match=r"gave no sign of progress for 0\.5 s"):
            await tools.connection.call("act", timeout_s=60)


async def test_a_line_of_60_megabytes_ends_the_connection_and_not_the_process(rogue):
    async with await rogue("long-line") as tools:
        result = await call(tools)
    assert result.failure.code == "UNAVAILABLE"
    assert "more than 16 MiB" in result.failure.message


async def test_a_pattern_that_backtracks_costs_nothing(rogue):
    async with await rogue("redos") as tools:
        runtime = hr.Runtime(tools)
        began = time.process_time()
        result = await runtime.call("rogue_act")
        took_s = time.process_time() - began
        await runtime.close()
    assert result.failure.code == "BAD_RESULT"
    assert took_s < 1.0  # the SDK's validation takes days for this text


@pytest.mark.parametrize("bad", ["remote-ref", "remote-ref-in"])
async def test_a_remote_reference_is_never_fetched(rogue, bad):
    asked = []

    async def note(reader, writer):
        asked.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ref = {"REMOTE_REF": f"http://127.0.0.1:{port}/schema.json"}
    async with server, await rogue(bad, env=ref) as tools:
        if bad == "remote-ref":
            assert (await call(tools)).value == "acted"
        else:
            assert "nothing is fetched" in tools.problems[0]
    assert asked == []


async def test_calls_of_other_servers_go_on_meanwhile(rogue, tmp_path):
    env = {"DEPOT_EFFECTS": os.devnull}
    depot = await hr.mcp.connect(STDIO, name="depot", overrides=READS, env=env)
    bad = await rogue("hang", SHORT_READ)
    runtime = hr.Runtime(bad + depot)
    stuck = asyncio.ensure_future(runtime.call("rogue_act"))
    answers = 0
    while not stuck.done():
        result = await runtime.call("depot_count_stock", {"item": "ab"})
        assert result.value == {"result": 2}
        answers += 1
    assert (await stuck).failure.code == "TIMEOUT"
    assert answers >= 10
    await runtime.close()


# ---------------------------------------------------------------------- at an address


class Far:
    """A server over HTTP, written by hand (2025-11-25), that misbehaves as it is told."""

    def __init__(self, bad):
        self.bad = bad
        self.sessions = 0
        self.alive = set()
        self.acted = 0
        self.answered = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/mcp"
        return self

    async def __aexit__(self, *error):
        self.server.close()

    async def serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self.answer(reader, writer):
                pass
        writer.close()

    async def answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if "last-event-id" in headers:
            return self.say(writer, "half-event", self.missed)
        if head[0].startswith(("GET", "DELETE")):
            return self.reply(writer, 405)
        message = json.loads(body)
        method = message.get("method")
        if "method" not in message:
            self.answered.set()
            return self.reply(writer, 404 if self.bad == "asks-and-is-lost" else 202)
        if "id" not in message:
            return self.reply(writer, 202)
        if method == "initialize":
            self.sessions += 1
            self.alive.add(str(self.sessions))
            done = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }
            session = {"mcp-session-id": str(self.sessions)}
            return self.reply(writer, 200, message["id"], done, session)
        if method == "server/discover":
            return self.reply(writer, 400)
        if headers.get("mcp-session-id") not in self.alive:
            if self.bad == "lost-in-words":
                error = {"code": -32000, "message": "No valid session ID"}
                return self.reply(writer, 400, None, error, key="error")
            return self.reply(writer, 404)
        if method == "tools/list":
            return self.reply(
                writer, 200, message["id"], {"tools": [rogue_program.TOOL]}
            )
        self.acted += 1
        return await self.act(writer, message["id"])

    async def act(self, writer, number):
        if self.bad == "cut":
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            writer.write(head + b": nothing yet\n\n")
            await writer.drain()
            return False
        if self.bad == "cut-json":
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            writer.write(head + b'content-length: 100\r\n\r\n{"jsonrpc"')
            await writer.drain()
            return False
        if self.bad in ("large", "large-event"):
            kind = b"application/json" if self.bad == "large" else b"text/event-stream"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind
            writer.write(head + b"\r\ncontent-length: 60000000\r\n\r\ndata:")
            for _ in range(60):
                writer.write(b" " * 1_000_000)
                await writer.drain()
            return False
        if self.bad.startswith("asks"):
            return await self.ask_and_fail(writer, number)
        if self.bad.isdigit():
            return self.reply(writer, int(self.bad))
        text = {"content": [{"type": "text", "text": f"acted {self.acted}"}]}
        if self.bad.startswith("half"):
            text["content"][0]["text"] += " \ud83d"
        if self.bad in ("html", "no-json", "event-no-json"):
            return self.say(writer, self.bad, "<p>Done.</p>")
        answer = {"jsonrpc": "2.0", "id": number, "result": text}
        if self.bad == "half-event":
            return self.say(writer, self.bad, json.dumps(answer))
        if self.bad == "half-later":  # the stream breaks off, and goes on by a GET
            self.missed = json.dumps(answer)
            return self.say(writer, "event", "", "id: 1\nretry: 1\n")
        return self.reply(writer, 200, number, text)

    async def ask_and_fail(self, writer, number):
        """Ask the person; after the answer refuse the call by an error of the protocol, or break off."""
        form = {"type": "object", "properties": {}}
        asked = {"mode": "form", "message": "Sure?", "requestedSchema": form}
        question = {"id": 1, "method": "elicitation/create", "params": asked}
        refusal = {"id": number, "error": {"code": -32602, "message": "not sure"}}
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        self.send_event(writer, question)
        await writer.drain()
        await self.answered.wait()
        if self.bad == "asks-and-refuses":
            self.send_event(writer, refusal)
            await writer.drain()
        return False

    def send_event(self, writer, message):
        text = json.dumps({"jsonrpc": "2.0", **message})
        writer.write(f"event: message\ndata: {text}\n\n".encode())

    def say(self, writer, bad, said, head=""):
        kind = "text/html" if bad == "html" else "application/json"
        if "event" in bad:
            kind = "text/event-stream"
            said = f"{head}event: message\ndata: {said}\n\n"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(said)}\r\n\r\n"
        writer.write(f"{head}{said}".encode())
        return True

    def reply(self, writer, status, number=None, result=None, headers=(), key="result"):
        body = b""
        if result is not None:
            answer = {"jsonrpc": "2.0", "id": number, key: result}
            body = json.dumps(answer).encode()
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines.append("content-type: application/json")
        lines += [f"{name}: {value}" for name, value in dict(headers).items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return True


def connect_far(far, overrides=READ):
    return hr.mcp.connect(far.url, name="far", overrides=overrides, connect_s=20)


@pytest.mark.parametrize("overrides", [READ, WRITE], ids=["read", "write"])
async def test_a_lost_session_is_replaced_and_the_call_sent_once_more(overrides):
    async with Far("") as far, await connect_far(far, overrides) as tools:
        runtime = hr.Runtime(tools)
        values = []
        for number in range(3):
            result = await runtime.call("far_act", {"to": str(number)})
            values.append(result.value)
            far.alive.clear()
        await runtime.close()
        assert values == ["acted 1", "acted 2", "acted 3"]
        assert far.acted == 3


async def test_many_calls_that_meet_a_lost_session_share_the_new_one():
    async with Far("") as far, await connect_far(far, WRITE) as tools:
        runtime = hr.Runtime(tools)
        far.alive.clear()
        calls = [runtime.call("far_act", {"to": str(n)}) for n in range(8)]
        results = await asyncio.gather(*calls)
        await runtime.close()
        assert [each.failure for each in results] == [None] * 8
        assert sorted(each.value for each in results) == [
            f"acted {n}" for n in range(1, 9)
        ]
        assert far.sessions == 2


KEYED = {"act": {**WRITE["act"], "replay": "key"}}


@pytest.mark.parametrize("overrides", [READ, WRITE, KEYED], ids=["read", "write", "keyed"])  # fmt: skip
async def test_a_session_that_is_lost_in_words_alone_repeats_no_write(overrides):
    async with Far("lost-in-words") as far, await connect_far(far, overrides) as tools:
        runtime = hr.Runtime(tools)
        far.alive.clear()
        first = await runtime.call("far_act", {"to": "1"})
        second = await runtime.call("far_act", {"to": "2"})
        await runtime.close()
    if overrides is WRITE:
        assert "No valid session ID" in first.failure.message
        assert second.value == "acted 1"
    else:
        assert (first.value, second.value) == ("acted 1", "acted 2")
    assert far.sessions == 2


NO_ANSWERS = ["202", "302", "html", "no-json", "event-no-json"]
"""Of whoever stands before a server, or of one that has done it and says something else."""


@pytest.mark.parametrize(
    "bad", ["cut", "cut-json", "large", "large-event", "500", "503", *NO_ANSWERS]
)
async def test_a_write_whose_answer_breaks_off_is_in_doubt(bad):
    async with Far(bad) as far, await connect_far(far, SHORT_WRITE) as tools:
        runtime = hr.Runtime(tools)
        first = await runtime.call("far_act", {"to": "x"})
        far.bad = ""
        second = await runtime.call("far_act", {"to": "y"})
        await runtime.close()
        assert first.failure.code == "IN_DOUBT"
        assert "The MCP server `far`" in first.failure.message
        assert second.value == "acted 2"
        assert far.sessions == 1


@pytest.mark.parametrize(
    ("bad", "code"), [("asks-and-refuses", "REFUSED"), ("asks-and-is-lost", "IN_DOUBT")]
)
async def test_how_an_answer_to_the_server_arrived_says_nothing_of_the_call(bad, code):
    """The status of an answer, 202 or 404, is not that of the call in which the server asked."""

    async def agree(asked):
        return hr.Approval(True, by="anna")

    async with (
        Far(bad) as far,
        await hr.mcp.connect(
            far.url, name="far", overrides=SHORT_WRITE, connect_s=20, approver=agree
        ) as tools,
    ):
        runtime = hr.Runtime(tools)
        result = await runtime.call("far_act", {"to": "x"})
        await runtime.close()
        assert far.answered.is_set()
        assert result.failure.code == code
        assert far.acted == 1


@pytest.mark.parametrize("bad", ["half", "half-event", "half-later"])
async def test_half_a_character_in_an_answer_over_http_is_a_question_mark(bad):
    async with Far(bad) as far, await connect_far(far, SHORT_WRITE) as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("far_act", {"to": "x"})
        await runtime.close()
        assert result.value == "acted 1 ?"
        assert far.acted == 1


@pytest.mark.parametrize("bad", ["cut", "cut-json", "503"])
async def test_a_read_whose_answer_breaks_off_is_tried_again(bad):
    async with Far(bad) as far, await connect_far(far, SHORT_READ) as tools:
        runtime = hr.Runtime(tools)
        calling = asyncio.ensure_future(runtime.call("far_act"))
        while far.acted < 1:
            await asyncio.sleep(0.001)
        far.bad = ""
        result = await calling
        await runtime.close()
        assert result.value == "acted 2"


@pytest.mark.parametrize(
    ("status", "code"),
    [("401", "NOT_AUTHENTICATED"), ("429", "RATE_LIMITED"), ("422", "REFUSED")],
)
async def test_a_write_that_was_refused_is_not_in_doubt(status, code):
    async with Far(status) as far, await connect_far(far, SHORT_WRITE) as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("far_act", {"to": "x"})
        far.bad = ""
        again = await runtime.call("far_act", {"to": "x"})
        await runtime.close()
        assert result.failure.code == code
        assert again.ok
