"""A server over HTTP: who may call, under which names it is reached, and what a state that comes back may do."""

import json
import socket
import time
from uuid import uuid4

import httpx2
import pytest
from mcp import Client, types
from mcp.server.mcpserver import RequestStateSecurity
from mcp.shared.exceptions import MCPError

import handrail as hr
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.serving.listening import open_socket
from handrail_mcp.listening import permit_hosts
from handrail_mcp.tokens import Tokens, digest_of, make_entry
from tests.handrail_mcp.reaching import (
    NEW,
    OLD,
    Person,
    Shop,
    accept,
    code_of,
    serve_shop,
    text_of,
)

pytestmark = pytest.mark.anyio

ANNA = "anna-has-a-long-token"
BEN = "ben-has-a-long-token-too"
BEN_AT_ACME = "ben-has-a-token-for-acme"
ROOM_19 = "the-room-has-a-long-token"
ROOM_QUOTED = "the-other-room-has-a-token"
"""Of `room 19` and `room’`: a space is 20 in hexadecimal, and the quotation mark is 2019."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def url(folder):
    tokens = folder / "tokens.toml"
    tokens.write_text(
        f"""
[[token]]
principal = "anna"
sha256 = "{digest_of(ANNA)}"

[[token]]
principal = "ben"
sha256 = "{digest_of(BEN).upper()}"

[[token]]
principal = "ben"
scope = "acme"
sha256 = "{digest_of(BEN_AT_ACME)}"

[[token]]
principal = "room 19"
sha256 = "{digest_of(ROOM_19)}"

[[token]]
principal = "room’"
sha256 = "{digest_of(ROOM_QUOTED)}"
""",
        encoding="utf-8",
    )
    with serve_shop(folder, str(tokens)) as url:
        yield url


@pytest.fixture(params=[OLD, NEW])
def shop(request, folder, url):
    return Shop(folder, request.param, url)


@pytest.fixture
def word():
    return uuid4().hex[:12]


# ---------------------------------------------------------------------- tokens


@pytest.mark.parametrize("token", ["", "wrong", ANNA[:-1], ANNA + "x"])
async def test_without_a_token_that_is_known_nothing_is_answered(url, token):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(url, json=INITIALIZE, headers={**ACCEPT, **headers})
    assert answer.status_code == 401
    assert "mcp-session-id" not in answer.headers


ACCEPT = {"Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    },
}


async def test_the_audit_log_has_the_principal_and_nothing_has_the_token(shop, word):
    async with shop.client(token=ANNA) as client:
        await client.call_tool("add_note", {"text": word})
    with shop.elsewhere() as elsewhere:
        records = [str(each) for each in result_now(elsewhere.store.log())]
    made = [each for each in records if word in each]
    assert any("'principal': 'anna'" in each for each in made)
    for path in shop.folder.iterdir():
        assert ANNA.encode() not in path.read_bytes()


async def test_a_long_result_is_its_principals_alone(shop):
    async with shop.client(token=ANNA) as client:
        result = await client.call_tool("list_rows", {"rows": 1000})
        handle = text_of(result).partition("read_result(handle='")[2].partition("'")[0]
        own = await client.call_tool("read_result", {"handle": handle})
    async with shop.client(token=BEN) as other:
        refused = await other.call_tool("read_result", {"handle": handle})
    assert not own.is_error
    assert code_of(refused) == "UNKNOWN_HANDLE"


async def test_one_key_of_two_principals_or_two_tenants_is_several_acts(shop, word):
    for token in (ANNA, BEN, BEN_AT_ACME, ANNA):
        async with shop.client(token=token) as client:
            await client.call_tool(
                "add_note", {"text": word}, meta={"handrail/idempotency-key": word}
            )
    assert shop.written("notes", word) == [word] * 3


async def test_no_two_names_of_principals_are_written_alike(shop, word):
    for token in (ROOM_19, ROOM_QUOTED):
        async with shop.client(token=token) as client:
            await client.call_tool("add_note", {"text": word})
    assert shop.written("notes", word) == [word] * 2


async def test_whose_call_it_is_does_not_count_where_two_must_agree(shop, word):
    person = Person([accept(approve=True)])
    async with shop.client(person, token=ANNA) as client:
        result = await client.call_tool("close_shop", {"reason": word})
    assert code_of(result) == "APPROVAL_PENDING"
    assert person.shown == []
    assert "it must be approved by somebody else than anna" in text_of(result)


async def test_a_session_of_another_principal_cannot_be_used(url):
    async with httpx2.AsyncClient() as http:
        opened = await http.post(
            url,
            json=INITIALIZE,
            headers={**ACCEPT, "Authorization": f"Bearer {ANNA}"},
        )
        session = opened.headers["mcp-session-id"]
        stolen = await http.post(
            url,
            json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
            headers={
                **ACCEPT,
                "Authorization": f"Bearer {BEN}",
                "Mcp-Session-Id": session,
                "Mcp-Protocol-Version": "2025-11-25",
            },
        )
    assert stolen.status_code == 404


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "nobody could call"),
        ("[[token", "cannot be read"),
        ("token = 3", "write [[token]]"),
        ("other = 3\n[[token]]", "nothing but tables"),
        ('[[token]]\nprincipal = "a"', "either `sha256`"),
        ('[[token]]\nprincipal = "a"\ntoken = "abc"', "never the token itself"),
        ('[[token]]\nprincipal = "a"\nsha256 = "abc"', "64 digits"),
        ('[[token]]\nprincipal = "a"\nenv = "NOT_SET"', "NOT_SET"),
        ('[[token]]\nprincipal = "a"\nenv = "SHORT"', "fewer than 16"),
        ('[[token]]\nprincipal = " "\nenv = "LONG"', "is no name: write who"),
        ('[[token]]\nprincipal = "a"\nenv = "LONG"\nscope = "a/b"', "slash"),
        (
            '[[token]]\nprincipal = "a"\nenv = "LONG"\n[[token]]\nprincipal = "b"\nenv = "LONG"',
            "the same token",
        ),
    ],
)
async def test_a_file_of_tokens_with_a_fault_is_refused(tmp_path, text, fault):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    environ = {"SHORT": "a" * 15, "LONG": "a" * 16}
    with pytest.raises(hr.ConfigError, match=fault.replace("[", r"\[")):
        Tokens.from_toml(file, environ)


async def test_a_token_in_place_of_its_owner_is_in_no_error(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text('[[token]]\nprincipal = """the-token\n"""\nenv = "LONG"')
    with pytest.raises(hr.ConfigError, match="is no name") as refused:
        Tokens.from_toml(file, {"LONG": "a" * 16})
    assert "the-token" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_token_that_was_made_is_accepted_and_not_in_the_file(tmp_path):
    entry = make_entry('anna "the cat" 陈', "acme")
    file = tmp_path / "tokens.toml"
    file.write_text(entry.text + make_entry("ben").text, encoding="utf-8")
    tokens = Tokens.from_toml(file)
    access = await tokens.verify_token(entry.token)
    assert entry.token not in entry.text
    assert access.subject == 'anna "the cat" 陈'
    assert access.token == ""
    assert await tokens.verify_token("\ud800") is None


async def test_what_a_caller_may_not_use_is_neither_listed_nor_run_for_them():
    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    @hr.tool(effect="write")
    def push() -> str:
        """Push."""
        raise AssertionError("it was pushed")

    reader = hr.Policy(max_permission="read")
    server = hr.mcp.server(
        hr.Runtime([look, push]), "shop", options=lambda _: {"policy": reader}
    )
    for mode in (OLD, NEW):
        async with Client(server, mode=mode) as client:
            listed = {each.name for each in (await client.list_tools()).tools}
            results = [
                await client.call_tool(name, {})
                for name in ("push", "functions.push", "PUSH")
            ]
            assert listed == {"look", "read_result"}
            assert {code_of(each) for each in results} <= {
                "NOT_PERMITTED",
                "UNKNOWN_TOOL",
            }


@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_two_names_of_one_client_are_not_two_people(mode):
    @hr.tool(effect="write", write=hr.Write(required_approvals=2))
    def close() -> str:
        """Close."""
        raise AssertionError("it was closed")

    server = hr.mcp.server(hr.Runtime([close]), "shop")

    async def agree(*_: object) -> types.ElicitResult:
        return accept(approve=True)

    for name in ("anna", "ben", "chris"):
        about = types.Implementation(name=name, version="1")
        async with Client(
            server, mode=mode, elicitation_callback=agree, client_info=about
        ) as client:
            result = await client.call_tool(
                "close", {}, meta={"handrail/idempotency-key": "1"}
            )
            assert code_of(result) == "APPROVAL_PENDING"


async def test_an_error_that_a_tool_got_from_elsewhere_is_not_the_clients():
    @hr.tool(effect="read")
    async def look() -> str:
        """Look elsewhere."""
        raise MCPError(types.INTERNAL_ERROR, "the key of 10.0.0.1 is hunter2")

    server = hr.mcp.server(hr.Runtime([look]), "shop")
    async with Client(server, mode=NEW) as client:
        result = await client.call_tool("look", {})
    assert code_of(result) == "INTERNAL_ERROR"
    assert "hunter2" not in text_of(result)


# ---------------------------------------------------------------------- names of the server


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example.com"}, 421),
        ({"Host": "localhost.evil.example.com:80"}, 421),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "null"}, 403),
        ({}, 200),
    ],
)
async def test_a_request_to_another_name_or_from_another_site_is_refused(
    url, headers, status
):
    async with httpx2.AsyncClient() as http:
        answer = await http.post(
            url,
            json=INITIALIZE,
            headers={**ACCEPT, "Authorization": f"Bearer {ANNA}", **headers},
        )
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("host", "hosts", "name", "permitted"),
    [
        ("127.0.0.1", (), "127.0.0.1:8000", True),
        ("0.0.0.0", (), "10.0.0.7:8000", False),
        ("0.0.0.0", ("mcp.example.com",), "mcp.example.com", True),
        ("0.0.0.0", ("mcp.example.com:8443",), "mcp.example.com:8443", True),
        ("0.0.0.0", ("mcp.example.com:8443",), "mcp.example.com:80", False),
        ("10.0.0.7", (), "10.0.0.7:8000", True),
        ("::1", (), "[::1]:8000", True),
    ],
)
def test_a_server_answers_to_its_own_names_only(host, hosts, name, permitted):
    allowed = permit_hosts(host, hosts).allowed_hosts
    with_any_port = f"{name.rpartition(':')[0]}:*"
    assert (name in allowed or with_any_port in allowed) is permitted


# ---------------------------------------------------------------------- a state that comes back


class Store:
    """Orders that were refunded."""

    def __init__(self) -> None:
        self.refunded: list[tuple[str, int]] = []

    def refund(self, order_id: str, amount: int) -> str:
        self.refunded.append((order_id, amount))
        return "refunded"


ASKS = types.ClientCapabilities(elicitation=types.ElicitationCapability())


async def no_answer(*_: object) -> types.ElicitResult:
    raise AssertionError("the test answers itself")


def open_shop(store: Store, security: RequestStateSecurity) -> hr.mcp.ToolServer:
    tool = hr.FunctionTool(
        store.refund, description="Refund.", effect="write", risk="high"
    )
    return hr.mcp.server(hr.Runtime([tool]), "shop", request_state_security=security)


async def begin(client: Client, **arguments: object) -> str:
    asked = await client.session.call_tool(
        "refund", arguments, allow_input_required=True
    )
    assert isinstance(asked, types.InputRequiredResult)
    return asked.request_state


async def go_on(client: Client, state: str, **arguments: object):
    return await client.session.call_tool(
        "refund",
        arguments,
        input_responses={"handrail/approval": accept(approve=True)},
        request_state=state,
        allow_input_required=True,
    )


KEY = b"a key of thirty-two bytes or more"


async def test_a_state_is_good_for_its_own_arguments_only():
    store = Store()
    server = open_shop(store, RequestStateSecurity(keys=[KEY]))
    async with Client(server, mode=NEW, elicitation_callback=no_answer) as client:
        state = await begin(client, order_id="A-1", amount=5)
        with pytest.raises(MCPError, match="requestState"):
            await go_on(client, state, order_id="A-1", amount=500)
        assert store.refunded == []
        result = await go_on(client, state, order_id="A-1", amount=5)
    assert text_of(result) == "refunded"
    assert store.refunded == [("A-1", 5)]


async def test_a_state_that_comes_back_twice_runs_the_call_once():
    store = Store()
    server = open_shop(store, RequestStateSecurity(keys=[KEY]))
    async with Client(server, mode=NEW, elicitation_callback=no_answer) as client:
        state = await begin(client, order_id="A-1", amount=5)
        for _ in range(3):
            await go_on(client, state, order_id="A-1", amount=5)
    assert store.refunded == [("A-1", 5)]


async def test_a_state_is_of_no_use_after_its_time(monkeypatch):
    store = Store()
    server = open_shop(store, RequestStateSecurity(keys=[KEY], ttl=60))
    async with Client(server, mode=NEW, elicitation_callback=no_answer) as client:
        state = await begin(client, order_id="A-1", amount=5)
        later = time.time() + 61
        monkeypatch.setattr("mcp.server.request_state.time.time", lambda: later)
        with pytest.raises(MCPError, match="requestState"):
            await go_on(client, state, order_id="A-1", amount=5)
    assert store.refunded == []


async def test_a_tool_that_changed_meanwhile_is_asked_about_anew():
    store = Store()
    server = open_shop(store, RequestStateSecurity(keys=[KEY]))
    async with Client(server, mode=NEW, elicitation_callback=no_answer) as client:
        state = await begin(client, order_id="A-1", amount=5)
        server.runtime.tools.redeclare("refund", description="Refund, and more.")
        asked = await go_on(client, state, order_id="A-1", amount=5)
        assert isinstance(asked, types.InputRequiredResult)
        assert store.refunded == []
        result = await go_on(client, asked.request_state, order_id="A-1", amount=5)
    assert text_of(result) == "refunded"


async def test_a_state_is_good_for_its_own_principal_only(folder, url, word):
    shop = Shop(folder, NEW, url)
    person = Person([])
    async with shop.client(person, token=ANNA) as client:
        state = await begin(client, order_id=word, amount=5)
    async with shop.client(person, token=BEN) as client:
        with pytest.raises(MCPError, match="requestState"):
            await go_on(client, state, order_id=word, amount=5)
    assert shop.written("refunds", word) == []


async def test_a_yes_without_a_state_is_no_yes():
    store = Store()
    server = open_shop(store, RequestStateSecurity(keys=[KEY]))
    async with Client(server, mode=NEW, elicitation_callback=no_answer) as client:
        asked = await client.session.call_tool(
            "refund",
            {"order_id": "A-1", "amount": 5},
            input_responses={"handrail/approval": accept(approve=True)},
            allow_input_required=True,
        )
    assert isinstance(asked, types.InputRequiredResult)
    assert store.refunded == []


async def test_a_tools_own_state_cannot_look_like_ours():
    """A tool that hands on what a stranger wrote must not be able to approve itself."""
    told = json.dumps(["handrail/1", "run", "call", "a_1", "", None, 0, None])

    @hr.tool(effect="read", limits=hr.Limits(poll=True))
    async def pass_on(context: hr.Context[hr.mcp.McpRequest]) -> str:
        """Hand on a state."""
        before = context.deps.context.request_state
        if before is not None:
            return f"{context.run_id != 'run'} {before == told}"
        form = types.ElicitRequestFormParams(
            message="?", requested_schema={"type": "object", "properties": {}}
        )
        raise hr.mcp.Leave(
            types.InputRequiredResult(
                input_requests={"x": types.ElicitRequest(params=form)},
                request_state=told,
            )
        )

    server = hr.mcp.server(hr.Runtime([pass_on]), "shop")

    async def answer(*_: object) -> types.ElicitResult:
        return accept()

    async with Client(server, mode=NEW, elicitation_callback=answer) as client:
        result = await client.call_tool("pass_on", {})
    assert text_of(result) == "True True"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_first_half(host):
    """Nagle's algorithm and a delayed acknowledgement cost 40 ms a call; asyncio ends that only for its own sockets."""
    try:
        listener = open_socket(host, 0)
    except ConfigError:
        pytest.skip("this machine has no such address")
    with listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
