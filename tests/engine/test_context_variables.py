"""The context variables of a caller (tenant, request, span) are seen by all code that its call runs."""

import asyncio
import contextvars
import json
import threading

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S

TENANT = contextvars.ContextVar("tenant", default="lost")
TENANTS = ("acme", "bolt", "core")


class Seen:
    """Which tenant each piece of user code saw, by the caller whose call it was."""

    def __init__(self):
        self.places = {}

    def note(self, place, caller):
        self.places.setdefault(caller, {}).setdefault(place, set()).add(TENANT.get())

    @property
    def wrong(self):
        return {
            (caller, place, *tenants)
            for caller, places in self.places.items()
            for place, tenants in places.items()
            if tenants != {caller}
        }


def tools_of(seen):
    """One tool for each way in which code of a tool's author is called."""
    failed = set()

    def key(place):
        def make(who: str):
            seen.note(f"key of {place}", who)
            return f"{place}:{who}"

        return make

    def check(who: str):
        seen.note("check", who)

    def verify(arguments, context):
        seen.note("verify", arguments["who"])
        return hr.Found("found")

    async def verify_async(arguments, context):
        seen.note("verify_async", arguments["who"])
        return hr.Found("found")

    @hr.tool(effect="read", timeout_s=BOUND_S)
    async def retried(who: str) -> str:
        """Fail once."""
        seen.note("retried", who)
        if who not in failed:
            failed.add(who)
            raise ConnectionResetError
        return who

    @hr.tool(effect="read", timeout_s=BOUND_S)
    def retried_in_thread(who: str) -> str:
        """Fail once, in a thread."""
        seen.note("retried_in_thread", who)
        if f"thread {who}" not in failed:
            failed.add(f"thread {who}")
            raise ConnectionResetError
        return who

    @hr.tool(
        effect="write",
        key=key("write"),
        check=check,
        resource="desk",
        timeout_s=BOUND_S,
    )
    async def write(who: str) -> str:
        """Write while others wait for the desk."""
        seen.note("write", who)
        await asyncio.sleep(0)
        seen.note("write, later", who)
        return who

    @hr.tool(effect="write", key=key("in thread"), resource="desk", timeout_s=BOUND_S)
    def write_in_thread(who: str) -> str:
        """Write in a thread."""
        seen.note("write_in_thread", who)
        return who

    @hr.tool(effect="write", key="asked:{who}", approve=True, timeout_s=BOUND_S)
    async def asked(who: str, context: hr.Context) -> str:
        """Write once somebody has agreed."""
        seen.note("asked", who)
        context.progress(1)
        return who

    @hr.tool(effect="write", key="v:{who}", verify=verify, timeout_s=BOUND_S)
    async def verified(who: str) -> str:
        """Break off."""
        raise ConnectionResetError

    @hr.tool(effect="write", key="va:{who}", verify=verify_async, timeout_s=BOUND_S)
    def verified_async(who: str) -> str:
        """Break off, in a thread."""
        raise ConnectionResetError

    return [
        retried,
        retried_in_thread,
        write,
        write_in_thread,
        asked,
        verified,
        verified_async,
    ]


def settings_of(seen, store):
    def approver(request):
        seen.note("approver", request.arguments["who"])
        return True

    def observer(event):
        if isinstance(getattr(event, "call", None), hr.ToolCall):
            seen.note("observer", json.loads(event.call.arguments)["who"])

    return {"store": store, "approver": approver, "observers": [observer]}


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"


async def act(runtime, names, door, who):
    TENANT.set(who)
    if door == "call":
        for name in names:
            assert (await runtime.call(name, {"who": who})).ok, name
    else:
        model = ScriptedModel([[call(name, who=who) for name in names], "end"])
        assert (await runtime.run("q", model=model, run_id=who)).ok


@pytest.mark.parametrize("door", ["call", "run"])
def test_all_code_of_a_call_finds_its_callers_variables(store, door):
    seen = Seen()
    tools = tools_of(seen)
    names = [tool.name for tool in tools]

    async def act_at_once():
        async with hr.Runtime(tools, **settings_of(seen, store)) as runtime:
            callers = [act(runtime, names, door, who) for who in TENANTS]
            await asyncio.wait_for(asyncio.gather(*callers), BOUND_S)

    asyncio.run(act_at_once())
    assert set(seen.places) == set(TENANTS)
    assert len(seen.places["acme"]) == 13
    assert seen.wrong == set()


def test_all_code_of_a_blocking_call_finds_its_callers_variables(store):
    seen = Seen()
    tools = tools_of(seen)

    def act_blocking(runtime, who):
        TENANT.set(who)
        for tool in tools:
            assert runtime.call(tool.name, {"who": who}).ok, tool.name

    with hr.SyncRuntime(tools, **settings_of(seen, store)) as runtime:
        threads = [
            threading.Thread(target=act_blocking, args=(runtime, who))
            for who in TENANTS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
    assert set(seen.places) == set(TENANTS)
    assert len(seen.places["acme"]) == 13
    assert seen.wrong == set()
