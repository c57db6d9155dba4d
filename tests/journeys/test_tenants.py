"""Tenants of one runtime and one store: what one of them gets does not depend on what the others do.

Each program is performed twice: by all tenants in turn on one runtime, and by each tenant alone on a runtime and a
store of its own. Whatever a tenant reads (results, errors, runs, questions, writes, the audit log) must be the same.
"""

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections import defaultdict
from typing import Annotated

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import handrail as hr
from handrail.engine.scoped_store import ScopedStore
from handrail.futures import result_now
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS, Driver
from tests.support.effort import examples

PAIRS = [
    ("acme", "globex"),
    ("acme", ""),
    ("acme", "Acme"),
    ("acme", "\u0430cme"),  # a Cyrillic letter
    ("\u00e9", "e\u0301"),
    ("@a", "a"),
    ("a%2Fb", "a%252Fb"),
    ("a:b", "a"),
    ("x' OR '1'='1", "x"),
    ("*", "%"),
]

Tenant = Annotated[str, hr.Injected(secret=False)]


class World:
    """What the tools of all tenants write into, one list for each tenant."""

    def __init__(self):
        self.done = defaultdict(list)

    def tools(self):
        return [
            hr.FunctionTool(
                self.create,
                effect="write",
                key="ticket:{number}",
                limits=hr.Limits(rate="4/h"),
                timeout_s=2,
                write=hr.Write(compensate=self.take_back),
            ),
            hr.FunctionTool(self.note, effect="write", resource="notes"),
            hr.FunctionTool(self.pay, effect="write", approve="amount > 1"),
            hr.FunctionTool(self.wipe, effect="destructive"),
            hr.FunctionTool(
                self.read, effect="read", limits=hr.Limits(result_bytes=400)
            ),
        ]

    def create(self, number: int, tenant: Tenant) -> str:
        """Create a ticket."""
        self.done[tenant].append(number)
        return f"ticket {number}, {len(self.done[tenant])}"

    def take_back(self, number, tenant, result):
        self.done[tenant].append(f"no {number}: {result}")

    def note(self, text: str, tenant: Tenant) -> str:
        """Write a note."""
        self.done[tenant].append(text)
        return f"noted {text}, {len(self.done[tenant])}"

    def pay(self, amount: int, tenant: Tenant) -> str:
        """Pay."""
        self.done[tenant].append(f"paid {amount}")
        return f"paid {amount}"

    def wipe(self, account: str, tenant: Tenant) -> str:
        """Wipe an account."""
        self.done[tenant].append(f"wiped {account}")
        return f"wiped {account}"

    def read(self, name: str, tenant: Tenant) -> str:
        """Read something long."""
        return f"{name} of {tenant} " * 100


class Desk:
    """One runtime, and what each of its tenants has read."""

    def __init__(self, kind, store, names):
        self.world = World()
        self.kind = kind
        self.names = names
        self.driver = Driver(kind, self.world.tools(), {"store": store})
        self.store = self.driver.runtime.store
        self.read = defaultdict(list)
        self.handles = {}
        self.learned = {}

    def perform(self, tenant, step):
        """Perform a step for a tenant, and write down what it gets."""
        verb, *given = step
        try:
            answer = getattr(self, f"do_{verb}")(tenant, *given)
        except hr.HandrailError as error:
            answer = type(error).__name__, str(error)
        self.read[tenant].append((verb, answer))

    def start(self, verb, tenant, *args, **options):
        options = {"scope": self.names[tenant], **options}
        if verb not in ("cancel",):
            options["inject"] = {"tenant": tenant}
        if verb == "cancel":
            return self.driver.runtime.cancel(*args, **options)
        return self.driver.start(verb, *args, **options).result(BOUND_S)

    def view(self, tenant):
        name = self.names[tenant]
        return ScopedStore(self.store, name) if name else self.store

    def listed(self, tenant, verb, **wanted):
        """Return rows of the store that belong to a tenant, as an administrator's program lists them."""
        rows = result_now(getattr(self.view(tenant), verb)(**wanted))
        if self.names[tenant]:
            return list(rows)
        return [row for row in rows if not getattr(row, "run_id", "").startswith("@")]

    # ------------------------------------------------------------------ the verbs

    def do_call(self, tenant, name, arguments, run):
        result = self.start("call", tenant, name, arguments, run=run)
        if result.handle:
            self.handles[tenant] = result.handle
        return result.ok, result.replayed, result.text

    def do_read_on(self, tenant, of, run):
        handle = self.handles.get(of, f"unknown-{of}")
        if of != tenant:  # the same one each time: equal calls are counted
            handle = self.learned.setdefault(tenant, handle)
        arguments = {"handle": handle}
        result = self.start("call", tenant, "read_result", arguments, run=run)
        return result.text.replace(handle, "HANDLE")

    def do_calls(self, tenant, ids, name, arguments, run):
        text = json.dumps(arguments)
        asked = [hr.ToolCall(each, name, text) for each in ids]
        results = self.start("calls", tenant, asked, run=run)
        return [(each.call_id, each.ok, each.text) for each in results]

    def do_handle(self, tenant, name, arguments, run):
        function = {"name": name, "arguments": json.dumps(arguments)}
        asked = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "tool_calls": [asked]}
        return self.start("handle", tenant, message, run=run)

    def do_run(self, tenant, name, arguments, run_id):
        model = ScriptedModel([call(name, **arguments), "Done."])
        run = self.start("run", tenant, "Go.", model=model, run_id=run_id)
        return run.id, run.status, run.text, run.messages

    def do_stream(self, tenant, name, arguments, run_id):
        model = ScriptedModel([call(name, **arguments), "Done."])
        options = {
            "model": model,
            "run_id": run_id,
            "scope": self.names[tenant],
            "inject": {"tenant": tenant},
        }
        stream = self.driver.runtime.stream("Go.", **options)
        if self.kind == "sync":
            return [type(event).__name__ for event in stream]

        async def read():
            return [type(event).__name__ async for event in stream]

        reading = asyncio.run_coroutine_threadsafe(read(), self.driver._loop)
        return reading.result(BOUND_S)

    def do_later(self, tenant, verb, run_id):
        options = {"model": ScriptedModel(["Over."])}
        if verb == "fork":
            options["at_turn"] = 1
        run = self.start(verb, tenant, run_id, **options)
        return run.status, run.text, run.messages

    def do_workflow(self, tenant, name, arguments, run_id):
        async def work(flow):
            return (await flow.call(name, arguments)).text

        def work_blocking(flow):
            return flow.call(name, arguments).text

        work_blocking.__name__ = "work"
        fn = work if self.kind == "asyncio" else work_blocking
        run = self.start("workflow", tenant, fn, run_id=run_id)
        return run.status, run.text

    def do_undo(self, tenant, run_id):
        offered = self.start("undoable", tenant, run_id)
        taken_back = self.start("undo", tenant, run_id)
        return [each.arguments for each in offered], [each.text for each in taken_back]

    def do_cancel(self, tenant, run_id):
        return self.start("cancel", tenant, run_id)

    def do_preview(self, tenant, name, arguments, run):
        seen = self.start("preview", tenant, name, arguments, run=run)
        return seen.decision, seen.failure

    def do_ask(self, tenant, act, id):
        """Ask the next question of a session."""
        name, arguments = act
        kind = hr.Session if self.kind == "asyncio" else hr.SyncSession
        session = kind(
            self.driver.runtime,
            id=id,
            model=ScriptedModel([call(name, **arguments), "Done."]),
            scope=self.names[tenant],
            inject={"tenant": tenant},
        )
        run = self.answer(session.run("Go on."))
        return run.status, run.text, run.messages

    def answer(self, coming):
        if self.kind == "sync":
            return coming
        return asyncio.run_coroutine_threadsafe(coming, self.driver._loop).result(
            BOUND_S
        )

    def do_decide(self, tenant, verb):
        approvals = self.driver.runtime.approvals.for_scope(self.names[tenant])
        asked = self.answer(approvals.list())
        if not asked:
            return None
        decided = self.answer(getattr(approvals, verb)(asked[0].id, by="anna"))
        return decided.run_id, decided.arguments, decided.state

    def do_look(self, tenant):
        return {
            "questions": [
                (each.run_id, each.tool, each.arguments, each.state)
                for each in self.listed(tenant, "list_approvals", state="")
            ],
            "runs": sorted(
                (each.run_id, each.status) for each in self.listed(tenant, "list_runs")
            ),
            "log": [(each.event, each.run_id) for each in self.listed(tenant, "log")],
            "writes": sorted(
                (each.tool, _NONCES.sub("/", each.key), each.state)
                for each in self.listed(tenant, "list_writes")
                if self.names[tenant] == each.scope
            ),
        }

    def close(self):
        self.driver.close()


_NONCES = re.compile(r"/[0-9a-f]{8}/")
"""What tells the writes of one process's calls from those of another."""
_IDS = re.compile(r"r_[0-9a-f]{12,}|\b[0-9a-f]{32}\b")


def plainly(read, name):
    """What a tenant has read as text, with numbers in place of random names."""
    text = repr(read).replace(name, "NAME") if name else repr(read)
    numbers = {}
    return _IDS.sub(
        lambda match: f"ID{numbers.setdefault(match[0], len(numbers))}", text
    )


numbers = st.integers(1, 2)
runs = st.sampled_from(["r", "s"])
acts = st.one_of(
    st.tuples(st.just("create"), st.builds(lambda n: {"number": n}, numbers)),
    st.tuples(st.just("note"), st.builds(lambda n: {"text": f"n{n}"}, numbers)),
    st.tuples(st.just("pay"), st.builds(lambda n: {"amount": n}, numbers)),
    st.tuples(st.just("wipe"), st.just({"account": "main"})),
    st.tuples(st.just("read"), st.just({"name": "page"})),
)
steps = st.one_of(
    st.builds(lambda act, run: ("call", *act, run), acts, runs),
    st.builds(lambda act, run: ("handle", *act, run), acts, runs),
    st.builds(
        lambda ids, act, run: ("calls", ids, *act, run),
        st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=2),
        acts,
        runs,
    ),
    st.builds(lambda act, run: ("run", *act, run), acts, runs),
    st.builds(lambda act, run: ("stream", *act, run), acts, runs),
    st.builds(lambda act, run: ("workflow", *act, f"w{run}"), acts, runs),
    st.builds(
        lambda verb, run: ("later", verb, run),
        st.sampled_from(["resume", "replay", "fork"]),
        runs,
    ),
    st.builds(lambda of, run: ("read_on", of, run), st.sampled_from(["x", "y"]), runs),
    st.builds(lambda run: ("undo", run), runs),
    st.builds(lambda run: ("cancel", run), runs),
    st.builds(
        lambda verb: ("decide", verb), st.sampled_from(["approve", "deny", "withdraw"])
    ),
    st.builds(lambda act, run: ("preview", *act, run), acts, runs),
    st.builds(lambda act, run: ("ask", act, f"s{run}"), acts, runs),
    st.just(("look",)),
)
programs = st.lists(st.tuples(st.sampled_from(["x", "y"]), steps), max_size=16)

TICKETS = [("call", "create", {"number": number}, "r") for number in range(5)]
USED_UP = [*(("x", ticket) for ticket in TICKETS), ("y", TICKETS[0])]
"""One tenant uses up its rate."""
READ_ON = [("x", ("call", "read", {"name": "page"}, "r")), ("y", ("read_on", "x", "r"))]
"""A tenant learns the handle of the other one's long result."""

_count = itertools.count()


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=examples(15, long=200),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(pair=PAIRS[0], program=USED_UP)
@example(pair=PAIRS[0], program=READ_ON)
@given(pair=st.sampled_from(PAIRS), program=programs)
def test_what_a_tenant_gets_does_not_depend_on_the_others(
    store, tmp_path, kind, pair, program
):
    number = f"{next(_count)}-"
    names = dict(zip("xy", (each and number + each for each in pair), strict=True))
    if "" in pair:  # all that is in this store is then the tenant's
        store = f"sqlite:///{tmp_path}/{number}shared.db"
    check_program(program, kind, store, names, tmp_path / number)


def check_program(program, kind, store, names, folder):
    """Compare what each tenant reads on a shared runtime with what it reads alone."""
    program = [*program, ("x", ("look",)), ("y", ("look",))]
    shared = Desk(kind, store, names)
    for tenant, step in program:
        shared.perform(tenant, step)
    shared.close()
    for tenant in "xy":
        alone = Desk(kind, f"sqlite:///{folder}{tenant}.db", names)
        for each, step in program:
            if each == tenant:
                alone.perform(tenant, step)
        alone.close()
        name = names[tenant]
        assert plainly(shared.read[tenant], name) == plainly(alone.read[tenant], name)
        assert shared.world.done[tenant] == alone.world.done[tenant]


# ---------------------------------------------------------------------- two processes at once

SERVICE = '''
import sys
from typing import Annotated

import handrail as hr

store, world, kind = sys.argv[1:]
Tenant = Annotated[str, hr.Injected(secret=kind == "secret")]


def create(number: int, tenant: Tenant) -> str:
    """Create a ticket."""
    with open(world, "a") as file:
        file.write(f"{tenant} {number}\\n")
    return f"ticket {number} of {tenant}"


key = "{number}" if kind == "scope" else "{tenant}:{number}"
tool = hr.FunctionTool(create, effect="write", key=key)
with hr.SyncRuntime([tool], store=store) as runtime:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(20):
        for tenant in ("acme", "globex"):
            result = runtime.call(
                "create",
                {"number": number},
                run=f"r{number}",
                scope=tenant if kind == "scope" else None,
                inject={"tenant": tenant},
            )
            assert tenant in result.text or result.failure or kind == "secret", result.text
            if result.failure is not None:
                assert result.failure.code == "IN_PROGRESS", result.text
'''


@pytest.mark.parametrize("kind", ["scope", "open", "secret"])
def test_two_processes_write_once_for_each_tenant(store, tmp_path, kind):
    world = tmp_path / "world"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SERVICE, store, str(world), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.wait(60) == 0, process.stderr.read()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
    written = world.read_text().splitlines()
    wanted = {f"{each} {number}" for each in ("acme", "globex") for number in range(20)}
    assert len(written) == len(wanted)
    assert set(written) == wanted
