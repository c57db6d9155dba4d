"""Many servers behind one gateway: real children, a real client at the other end."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from mcp import Client, types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from handrail.core.budgets import Budget
from handrail.core.policy import Policy, Rule
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail_mcp.gateways.gateway import Gateway, explain_call
from handrail_mcp.gateways.settings import GatewaySettings
from handrail_mcp.pins import Pins
from handrail_mcp.server_settings import ServerSettings, read_server
from tests.handrail_mcp.gateways import find_processes

ROOT = Path(__file__).parents[2]
ERAS = ("legacy", "2026-07-28")
ALLOW = Policy(rules=[Rule(then="allow")])


def settings(folder, *names, policy=ALLOW, env=None, **how):
    servers = {
        name: ServerSettings(
            name=name,
            command=sys.executable,
            args=["-m", "tests.handrail_mcp.many", "stdio"],
            cwd=str(ROOT),
            env={
                "MANY_NAME": name,
                "MANY_EFFECTS": str(folder / "effects"),
                **(env or {}),
            },
            trust="hints",
        )
        for name in names or ("one",)
    }
    how.setdefault("store", f"sqlite:///{folder / 'gateway.db'}")
    return GatewaySettings(
        servers=servers, policy=policy, pins=folder / "pins.json", **how
    )


AGREED: dict[str, str] = {}
"""Pins of servers that are as usual, by their names: they are asked once."""


async def agree_to_all(given):
    """Agree to what the servers say of themselves; they are started for that once."""
    names = " ".join(given.servers)
    if names not in AGREED:
        gateway = Gateway(given)
        await gateway.start()
        await gateway.aclose()
        for name in given.servers:
            gateway.pins.agree(name)
        AGREED[names] = given.pins.read_text()
    given.pins.write_text(AGREED[names])


async def wait_for(condition):
    """Wait until something holds; it fails a test where it never does."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connected(given, *, mode=ERAS[0], agreed=True, dry_run=False, **callbacks):
    """Yield a client of a gateway in this process."""
    if agreed:
        await agree_to_all(given)
    gateway = Gateway(given, dry_run=dry_run)
    try:
        async with Client(gateway._lowlevel_server, mode=mode, **callbacks) as client:
            yield client
    finally:
        await gateway.aclose()


def effects(folder):
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


def text_of(answer):
    return answer.content[0].text


def failure_of(answer):
    assert answer.is_error, answer
    return answer.structured_content["error_code"]


# ---------------------------------------------------------------------- one server of many


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
def test_two_servers_are_one_whose_tools_prompts_and_resources_keep_their_homes(
    tmp_path, mode
):
    async def main():
        async with connected(settings(tmp_path, "one", "two"), mode=mode) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"one_send", "two_send", "one_look", "read_result"} <= names
            looked = await client.call_tool("two_look", {"what": "a view"})
            assert text_of(looked) == "a view of two"
            prompts = {each.name for each in (await client.list_prompts()).prompts}
            assert prompts == {"one_greet", "two_greet"}
            prompt = await client.get_prompt("two_greet", {"whom": "Ann"})
            assert prompt.messages[0].content.text == "Greet Ann as two."
            # both have this address: the first one's counts
            (resource,) = (await client.list_resources()).resources
            read = await client.read_resource(resource.uri)
            assert read.contents[0].text == "the motto of one"

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* as of 2026-07-28")
def test_a_client_is_told_of_a_resource_until_it_unsubscribes(tmp_path):
    updated = []

    async def take(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))

    async def main():
        given = settings(tmp_path)
        async with connected(given, message_handler=take) as client:
            await client.list_tools()
            session = client.session
            await session.subscribe_resource("many://motto")
            await client.call_tool("one_change_motto", {"to": "a"})
            await wait_for(lambda: updated == ["many://motto"])
            await session.unsubscribe_resource("many://motto")
            await client.call_tool("one_change_motto", {"to": "b"})
        assert updated == ["many://motto"]

    asyncio.run(main())
    assert effects(tmp_path) == ["subscribe many://motto", "unsubscribe many://motto"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* as of 2026-07-28")
def test_a_client_is_told_of_a_resource_also_by_a_server_that_was_started_again(
    tmp_path,
):
    updated = []

    async def take(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))

    async def main():
        given = settings(tmp_path)
        async with connected(given, message_handler=take) as client:
            await client.list_tools()
            await client.session.subscribe_resource("many://motto")
            for pid in find_processes(f"MANY_EFFECTS={tmp_path}"):
                with suppress(ProcessLookupError):  # a launcher takes its server along
                    os.kill(pid, signal.SIGKILL)
            subscribed = "subscribe many://motto"
            while effects(tmp_path).count(subscribed) < 2:
                with suppress(MCPError):
                    await client.read_resource("many://motto")
            await client.call_tool("one_change_motto", {"to": "a"})
            await wait_for(lambda: updated == ["many://motto"])

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* as of 2026-07-28")
def test_a_client_says_from_which_level_on_it_takes_log_lines(tmp_path):
    lines = []

    async def take(params):
        lines.append((params.level, params.data))

    async def main():
        async with connected(settings(tmp_path), logging_callback=take) as client:
            await client.list_tools()
            await client.call_tool("one_report", {"text": "first"})
            await wait_for(lambda: lines)
            await client.session.set_logging_level("error")
            await client.call_tool("one_report", {"text": "second"})
        assert lines == [("info", "first")]

    asyncio.run(main())


@pytest.mark.slow
def test_a_dry_run_says_what_would_become_of_a_call_and_calls_nothing(tmp_path):
    rules = [
        Rule("one_send", "allow", arguments={"to": "Ann"}),
        Rule("one_send", "deny"),
    ]

    async def main():
        given = settings(tmp_path, policy=Policy(rules=rules))
        async with connected(given, dry_run=True) as client:
            await client.list_tools()
            answers = [
                await client.call_tool(name, given)
                for name, given in (
                    ("one_send", {"to": "Ann"}),
                    ("one_send", {"to": "Bob"}),
                    ("one_send", {"whom": "Ann"}),
                    ("one_drop", {}),
                )
            ]
        decisions = [each.structured_content["decision"] for each in answers]
        assert decisions == ["allow", "deny", "deny", "deny"]
        assert [each.is_error for each in answers] == [False, True, True, True]
        assert "dry run, nothing was called" in text_of(answers[0])

    asyncio.run(main())
    assert effects(tmp_path) == []


@pytest.mark.slow
def test_a_write_is_sent_once_and_its_repetition_is_told(tmp_path):
    async def main():
        async with connected(settings(tmp_path)) as client:
            await client.list_tools()
            for _ in range(2):
                answer = await client.call_tool("one_send", {"to": "Ann"})
                assert "sent to Ann" in text_of(answer)
            assert "already done" in text_of(answer)
        assert effects(tmp_path) == ["send Ann"]

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
def test_a_server_asks_the_person_at_the_client(tmp_path, mode):
    async def fill_in(_, params):
        assert params.message == "Which color?"
        return types.ElicitResult(action="accept", content={"color": "blue"})

    async def main():
        given = settings(tmp_path)
        async with connected(given, mode=mode, elicitation_callback=fill_in) as client:
            await client.list_tools()
            answer = await client.call_tool("one_ask_color", {})
            return text_of(answer)

    told = asyncio.run(main())
    if mode == "legacy":
        assert told == "accept: blue"
    else:  # this server does not speak the newer way of asking
        assert "color" in told.lower() or "elicit" in told.lower() or "client" in told


@pytest.mark.slow
@pytest.mark.parametrize("tools", [None, types.SamplingToolsCapability()])
def test_a_server_is_told_what_the_client_can_do_and_no_more(tmp_path, tools):
    async def sample(_, params):
        raise AssertionError("nobody asks")

    async def main():
        callbacks = {
            "sampling_callback": sample,
            "sampling_capabilities": types.SamplingCapability(tools=tools),
        }
        async with connected(settings(tmp_path), **callbacks) as client:
            await client.list_tools()
            return await client.call_tool("one_list_capabilities", {})

    declared = asyncio.run(main()).structured_content
    assert set(declared) == {"sampling"}
    assert set(declared["sampling"]) == ({"tools"} if tools else set())


@pytest.mark.slow
def test_a_large_result_is_cut_and_can_be_read_on_by_the_same_client(tmp_path):
    async def main():
        async with connected(settings(tmp_path)) as client:
            await client.list_tools()
            answer = await client.call_tool("one_large", {})
            text = text_of(answer)
            assert len(text) < 60_000
            handle = re.search(r"handle='(\w+)'", text)[1]
            given = {"handle": handle, "offset": 300_000}
            more = await client.call_tool("read_result", given)
            assert "line 25930" in text_of(more)

    asyncio.run(main())


@pytest.mark.slow
def test_a_write_that_asks_first_is_done_once_the_client_has_answered(tmp_path):
    async def fill_in(_, params):
        return types.ElicitResult(action="accept", content={"color": "blue"})

    async def main():
        given = settings(tmp_path)
        async with connected(
            given, mode=ERAS[1], elicitation_callback=fill_in
        ) as client:
            await client.list_tools()
            return await client.call_tool("one_write_color", {})

    answer = asyncio.run(main())
    assert text_of(answer) == "written", answer
    assert effects(tmp_path) == ["color blue"]


@pytest.mark.slow
def test_text_beside_a_small_object_does_not_get_round_the_limit(tmp_path):
    async def main():
        async with connected(settings(tmp_path)) as client:
            await client.list_tools()
            return await client.call_tool("one_smuggle", {})

    assert len(asyncio.run(main()).model_dump_json()) < 60_000


@pytest.mark.slow
def test_a_session_s_budget_ends_its_calls(tmp_path):
    async def main():
        given = settings(tmp_path, budget=Budget(calls=2, turns=None, time_s=None))
        async with connected(given) as client:
            listed = await client.list_tools()
            assert listed
            answers = [
                await client.call_tool("one_look", {"what": str(number)})
                for number in range(3)
            ]
            return [each.is_error for each in answers], answers[-1]

    failed, last = asyncio.run(main())
    assert failed == [False, False, True]
    assert failure_of(last) == "BUDGET_EXHAUSTED"


@pytest.mark.slow
def test_an_untrusted_server_is_not_believed_that_its_write_did_not_happen(tmp_path):
    given = settings(tmp_path)
    server = ServerSettings(**{**_fields(given.servers["one"]), "trust": "none"})
    given = replace(given, servers={"one": server})

    async def main():
        async with connected(given) as client:
            await client.list_tools()
            return await client.call_tool("one_pretend", {})

    answer = asyncio.run(main())
    assert failure_of(answer) == "TOOL_FAILED"
    assert "a_123" not in answer.model_dump_json()


# ---------------------------------------------------------------------- what nobody agreed to


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
def test_a_running_gateway_hears_that_somebody_agreed(tmp_path, mode):
    async def main():
        async with connected(settings(tmp_path), agreed=False, mode=mode) as client:
            if (
                mode == "legacy"
            ):  # the newer revision has no such promise without asking
                assert client.server_capabilities.tools.list_changed
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert listed == ["read_result"]
            Pins(tmp_path / "pins.json").agree("one", ["look"])
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert listed == ["one_look", "read_result"]
            Pins(tmp_path / "pins.json").forget("one")
            answer = await client.call_tool("one_look", {"what": "x"})
            assert failure_of(answer) == "UNKNOWN_TOOL"

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("change", ["description", "schema", "hint", "name"])
def test_a_tool_that_changed_overnight_is_neither_listed_nor_callable(tmp_path, change):
    async def main():
        await agree_to_all(settings(tmp_path))
        changed = settings(tmp_path, env={"MANY_CHANGE": change})
        own = "post" if change == "name" else "send"
        async with connected(changed, agreed=False) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert f"one_{own}" not in names
            assert "one_look" in names
            answer = await client.call_tool(f"one_{own}", {"to": "Ann"})
            assert failure_of(answer) == "UNKNOWN_TOOL"
        pins = Pins(tmp_path / "pins.json")
        diff = pins.diff("one", own)
        assert diff
        if change == "description":
            assert "evil@example.com" in diff
            assert "\u200b" not in diff  # shown, not hidden
        pins.agree("one", [own])
        async with connected(changed, agreed=False) as client:
            await client.list_tools()
            await client.call_tool(f"one_{own}", {"to": "Ann"})
        assert effects(tmp_path) == ["send Ann"]

    asyncio.run(main())


@pytest.mark.slow
def test_before_anybody_agreed_there_is_nothing_to_call(tmp_path):
    async def main():
        async with connected(settings(tmp_path), agreed=False) as client:
            listed = [each.name for each in (await client.list_tools()).tools]
            assert listed == ["read_result"]
            answer = await client.call_tool("one_look", {"what": "x"})
            assert failure_of(answer) == "UNKNOWN_TOOL"

    asyncio.run(main())


# ---------------------------------------------------------------------- escapes

DENY = Policy(rules=[Rule("one_send", "deny"), Rule(then="allow")])


SPELLINGS = [
    "one_send", "send", "ONE_SEND", " one_send ", "one.send", "functions.one_send", "one_send\u200b", "one/send",
]  # fmt: skip


@pytest.mark.slow
def test_a_denied_tool_is_not_callable_under_any_spelling(tmp_path):
    async def main():
        async with connected(settings(tmp_path, policy=DENY)) as client:
            await client.list_tools()
            to = {"to": "Ann"}
            calls = [(name, to) for name in SPELLINGS]
            calls += [
                ("call_tool", {"name": name, "arguments": to}) for name in SPELLINGS
            ]
            for name, arguments in calls:
                try:
                    answer = await client.call_tool(name, arguments)
                except MCPError:
                    continue
                assert answer.is_error, (name, arguments)

    asyncio.run(main())
    assert effects(tmp_path) == []


@pytest.mark.slow
def test_a_denied_permission_is_not_even_listed(tmp_path):
    async def main():
        read_only = Policy(max_permission="read")
        async with connected(settings(tmp_path, policy=read_only)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "one_look" in names
            assert names & {"one_send", "one_slow"} == set()
            assert failure_of(await client.call_tool("one_send", {"to": "Ann"}))

    asyncio.run(main())
    assert effects(tmp_path) == []


@pytest.mark.slow
def test_secrets_of_one_server_reach_neither_another_nor_the_client(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("OUR_OWN_TOKEN", "tok-of-the-gateway-itself")
    env = {"SHOP_TOKEN": "tok-of-the-shop-1234567"}
    given = settings(tmp_path, "one", env=env)
    other = settings(tmp_path, "two").servers
    given = GatewaySettings(
        servers={**given.servers, **other},
        policy=ALLOW,
        store=given.store,
        pins=given.pins,
    )

    async def main():
        async with connected(given) as client:
            await client.list_tools()
            one = (await client.call_tool("one_show_secrets", {})).model_dump_json()
            two = (await client.call_tool("two_show_secrets", {})).model_dump_json()
        return one, two

    one, two = asyncio.run(main())
    assert "SHOP_TOKEN" in one
    for text in (one, two):
        assert "tok-of-the-shop" not in text
        assert "tok-of-the-gateway" not in text
    stored = (tmp_path / "gateway.db").read_bytes()
    assert b"tok-of-the-shop" not in stored


@pytest.mark.slow
def test_names_that_collide_are_listed_for_nobody(tmp_path):
    given = settings(tmp_path, "a")
    twin = settings(tmp_path, "b").servers["b"]
    servers = {
        "a": given.servers["a"],
        "b": ServerSettings(**{**_fields(twin), "prefix": "a_"}),
    }
    given = GatewaySettings(
        servers=servers, policy=ALLOW, store="memory:", pins=given.pins
    )

    async def main():
        async with connected(given) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "a_look" not in names

    asyncio.run(main())


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


# ---------------------------------------------------------------------- many tools


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
def test_too_many_definitions_are_searched_and_called_by_two_tools(tmp_path, mode):
    async def main():
        given = settings(tmp_path, definition_tokens=100)
        async with connected(given, mode=mode) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert listed == ["find_tools", "call_tool", "read_result"]
            found = await client.call_tool("find_tools", {"query": "look at something"})
            names = [each["name"] for each in found.structured_content["tools"]]
            assert names[0] == "one_look"
            call = {"name": "one_look", "arguments": '{"what": "a view"}'}
            assert text_of(await client.call_tool("call_tool", call)) == "a view of one"
            for wrong in (
                {"name": "one_look", "arguments": "what"},
                {"name": "call_tool", "arguments": {}},
                {"arguments": {}},
            ):
                answer = await client.call_tool("call_tool", wrong)
                assert failure_of(answer) == "INVALID_ARGUMENTS"

    asyncio.run(main())


# ---------------------------------------------------------------------- what a person reads


@pytest.mark.slow
def test_what_would_become_of_a_call_is_explained_without_a_call(tmp_path):
    rules = [
        Rule("one_send", "allow", arguments={"to": "[a-z]+@example[.]com"}),
        Rule("one_send", "deny", reason="only to us"),
    ]
    given = settings(tmp_path, policy=Policy(rules=rules))

    async def main():
        await agree_to_all(given)
        cases = [
            ("one_send", {"to": "ann@example.com"}, "allow"),
            ("one_send", {"to": "ann@example.com\nx"}, "deny"),
            ("one_send", {}, "deny"),
            ("one_slow", {"to": "x"}, "allow"),
            ("no_such", {}, "deny"),
        ]
        gateway = Gateway(given)
        await gateway.start()
        await gateway.aclose()
        for name, arguments, decision in cases:
            told = explain_call(gateway, name, arguments)
            assert told["decision"] == decision, (name, arguments, told)

    asyncio.run(main())
    assert effects(tmp_path) == []


# ---------------------------------------------------------------------- over real standard streams


@pytest.mark.slow
@pytest.mark.proof
def test_a_killed_gateway_has_sent_nothing_twice_and_names_what_is_in_doubt(tmp_path):
    """Kill the gateway in the middle of writes, start it again, and make each call again under its own key."""
    config = tmp_path / "gateway.toml"
    config.write_text(
        f"""
[gateway]
[[gateway.rules]]
then = "allow"
[mcp.servers.one]
command = {json.dumps(sys.executable)}
args = ["-m", "tests.handrail_mcp.many", "stdio"]
cwd = {json.dumps(str(ROOT))}
env = {{ MANY_NAME = "one", MANY_EFFECTS = {json.dumps(str(tmp_path / "effects"))} }}
trust = "hints"
"""
    )
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "handrail", "gateway", "--config", str(config), "run"],
        env={**os.environ},
        cwd=ROOT,
    )
    writes = 60
    ends = {}

    async def write_all(kill_after):
        process_ids = set()
        async with Client(stdio_client(program), mode="legacy") as client:
            await client.list_tools()

            async def write(number):
                to = f"w{number}"
                meta = {"handrail/idempotency-key": f"key-{number}"}
                answer = await client.call_tool(
                    "one_slow", {"to": to, "seconds": 0.01}, meta=meta
                )
                ends[to] = failure_of(answer) if answer.is_error else "done"

            tasks = [asyncio.create_task(write(number)) for number in range(writes)]
            if kill_after:
                while len(ends) < kill_after:
                    await asyncio.sleep(0.005)
                process_ids.update(_gateways_of(config))
                for pid in process_ids:
                    os.kill(pid, 9)
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def main():
        from handrail_mcp.gateways.settings import read_gateway

        await agree_to_all(read_gateway(config))
        for kill_after in (5, 20):
            try:
                await asyncio.wait_for(write_all(kill_after), 60)
            except BaseException:
                pass
        await asyncio.wait_for(write_all(0), 120)

    asyncio.run(main())
    done = effects(tmp_path)
    assert len(done) == len(set(done)), "a write was sent twice"
    assert len(ends) == writes
    in_doubt = {to for to, end in ends.items() if end != "done"}
    assert {ends[to] for to in in_doubt} <= {"IN_DOUBT"}
    for number in range(writes):
        to = f"w{number}"
        assert f"slow {to}" in done or to in in_doubt


def _gateways_of(config):
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(config).encode() in words and b"gateway" in words:
                yield int(entry.name)


# ---------------------------------------------------------------------- walls

SPY = """
import os, socket
from pathlib import Path
from mcp.server.mcpserver import MCPServer
server = MCPServer("spy", log_level="ERROR")
@server.tool()
def spy(secret: str, outside: str, inside: str, port: int) -> str:
    told = [f"processes: {sum(each.isdecimal() for each in os.listdir('/proc')) < 5}"]
    for name, act in (
        ("read", lambda: Path(secret).read_text()),
        ("outside", lambda: Path(outside).write_text("x")),
        ("inside", lambda: Path(inside).write_text("x")),
        ("network", lambda: socket.create_connection(("127.0.0.1", port), 2)),
    ):
        try:
            act()
            told.append(f"{name}: yes")
        except OSError:
            told.append(f"{name}: no")
    return ", ".join(told)
server.run("stdio")
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(Bubblewrap().lacks), reason="no isolation here")
def test_a_server_within_walls_reads_no_home_and_writes_only_where_it_may(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("key")
    table = {
        "command": sys.executable,
        "args": ["-c", SPY],
        "sandbox": {
            "write": [str(work)],
            "read": [sys.prefix, sys.base_prefix, str(ROOT)],
        },
        "tools": {"spy": {"effect": "read"}},
    }
    given = GatewaySettings(
        servers={"spy": read_server("spy", table)},
        policy=ALLOW,
        store="memory:",
        pins=tmp_path / "pins.json",
    )

    async def main():
        listener = socket.create_server(("127.0.0.1", 0))
        arguments = {
            "secret": str(tmp_path / "secret"),
            "outside": str(ROOT / "written"),
            "inside": str(work / "written"),
            "port": listener.getsockname()[1],
        }
        async with connected(given) as client:
            await client.list_tools()
            answer = await client.call_tool("spy_spy", arguments)
        listener.close()
        return text_of(answer)

    told = asyncio.run(main())
    assert told == "processes: True, read: no, outside: no, inside: yes, network: no"
    assert (work / "written").exists()
    assert not (ROOT / "written").exists()
