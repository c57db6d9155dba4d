"""Sessions: rounds of one run, over one store, in any process and with any provider."""

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

import handrail as hr
from handrail import testing
from handrail.errors import JournalMismatch, RunNameTaken, RunUnderWay
from handrail.events import ModelAsked
from handrail.testing import Fault, ManualClock, ScriptedModel, ScriptedServer, call
from tests.engine.test_resume import Died, MortalStore
from tests.engine.test_resume import World as Tickets

WIRES = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "gemini-interactions",
    "cohere",
    "bedrock",
]


class World:
    """Tools that count what they do."""

    def __init__(self):
        self.written = []
        self.read = []

        @hr.tool(effect="write", timeout_s=5)
        def note(text: str) -> str:
            """Write a note."""
            self.written.append(text)
            return f"noted {text}"

        @hr.tool(effect="read", timeout_s=5)
        def look(place: str) -> str:
            """Look at a place."""
            self.read.append(place)
            return f"nothing at {place}"

        @hr.tool(effect="read", timeout_s=5)
        def page(number: int) -> str:
            """Read a page."""
            return f"page {number} " * 400

        @hr.tool(effect="write", approve="True", timeout_s=5)
        def pay(amount: int) -> str:
            """Pay."""
            self.written.append(amount)
            return f"paid {amount}"

        self.tools = [note, look, page, pay]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/h.db"


def as_json(messages):
    """Return messages to be compared: lists and tuples are one."""
    return json.loads(json.dumps(hr.messages_as_json(messages)))


def texts(messages):
    return [getattr(each, "text", None) or type(each).__name__ for each in messages]


# ---------------------------------------------------------------------- going on


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_a_question_is_asked_after_everything_that_was_said(world, store, kind):
    model = ScriptedModel([call("note", text="a"), "Noted.", "You asked for a note."])
    with hr.SyncRuntime(
        world.tools, store=store if kind == "sqlite" else kind
    ) as runtime:
        first = runtime.run("Note a.", model=model, system="Be short.")
        second = runtime.run("What did I ask?", model=model, after=first)
    assert (first.round, second.round, second.id) == (1, 2, first.id)
    assert as_json(second.messages[: second.earlier]) == as_json(first.messages)
    assert texts(second.new_messages) == ["What did I ask?", "AssistantMessage"]
    assert model.requests[2].messages == tuple(second.messages[:-1])


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_a_session_is_asked_again_and_again(world, store, kind):
    model = ScriptedModel(["One.", "Two.", "Three."])

    async def talk():
        async with hr.Runtime(
            world.tools, store=store if kind == "sqlite" else kind
        ) as runtime:
            session = hr.Session(runtime, id="s", model=model, system="Be short.")
            runs = [await session.run(f"{n}?") for n in (1, 2, 3)]
            events = [event async for event in session.stream("4?")]
            return runs, events, await session.messages()

    runs, events, messages = asyncio.run(talk())
    assert [(run.round, run.text) for run in runs] == [
        (1, "One."), (2, "Two."), (3, "Three."),
    ]  # fmt: skip
    assert any(isinstance(event, ModelAsked) for event in events)
    assert len(messages) == 1 + 2 * 4


def test_a_session_is_found_by_its_name_in_any_process(world, store):
    model = ScriptedModel(["One.", "Two."])
    for question in ("1?", "2?"):
        with hr.SyncRuntime(world.tools, store=store) as runtime:
            run = hr.SyncSession(runtime, id="s", model=model).run(question)
    assert (run.round, run.text) == (2, "Two.")


def test_every_run_can_be_gone_on_with(world, store):
    model = ScriptedModel(["One.", "Two."])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        run = runtime.run("1?", model=model)
        assert hr.SyncSession(runtime, id=run.id, model=model).run("2?").round == 2


def test_an_answer_of_a_given_form_belongs_to_its_question_alone(world, store):
    class Count(BaseModel):
        count: int

    model = ScriptedModel(["One.", '{"count": 2}', "Three."])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, model=model)
        runs = [
            session.run("1?"),
            session.run("2?", output=Count),
            session.run("3?"),
        ]
    assert [run.output for run in runs] == [None, Count(count=2), None]


# ---------------------------------------------------------------------- what holds for the whole, and what for a round


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_a_write_is_not_repeated_in_a_later_round(world, store, kind):
    model = ScriptedModel([call("note", text="a"), "1", call("note", text="a"), "2"])
    with hr.SyncRuntime(
        world.tools, store=store if kind == "sqlite" else kind
    ) as runtime:
        session = hr.SyncSession(runtime, model=model)
        session.run("Note a.")
        run = session.run("Note a.")
    assert world.written == ["a"]
    assert run.messages[-2].result.replayed


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_budget_loops_and_time_begin_anew_with_each_question(world, store, kind):
    script = [
        line for n in range(100) for line in (call("look", place="here"), f"{n}.")
    ]
    clock = ManualClock()
    with hr.SyncRuntime(
        world.tools,
        store=store if kind == "sqlite" else kind,
        budget=hr.Budget(calls=1, turns=2, time_s=60),
        now=clock,
    ) as runtime:
        session = hr.SyncSession(runtime, model=ScriptedModel(script))
        for number in range(100):
            run = session.run("And now?")
            assert (run.status, run.text) == ("done", f"{number}.")
            assert run.spent.calls == 1
            assert not any(
                each.result.failure or each.result.note
                for each in run.new_messages
                if isinstance(each, hr.ToolMessage)
            )
            clock.advance(3600)
    assert len(world.read) == 100


def test_a_long_result_is_read_on_in_a_later_round(world, store):
    def read_on(messages):
        results = [each.result for each in messages if isinstance(each, hr.ToolMessage)]
        return call("read_result", handle=results[0].handle, limit=20)

    model = ScriptedModel([call("page", number=7), "1", read_on, "2"])
    with hr.SyncRuntime(world.tools, store=store, result_bytes=1024) as runtime:
        session = hr.SyncSession(runtime, model=model)
        session.run("Page 7?")
        run = session.run("The rest?")
    assert run.messages[-2].result.value["text"] == "page 7 page 7 page 7"


def test_the_store_gets_only_what_is_new(world, store):
    script = [
        line for n in range(40) for line in (call("look", place=f"{n:03}"), f"{n:03}.")
    ]
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, id="s", model=ScriptedModel(script))
        sizes = []
        for _ in range(40):
            session.run("And now?")
            stored = runtime.store.load_run("s").result()
            bodies = [step.body for step in stored.steps]
            sizes.append(
                len(json.dumps([bodies, stored.record.input, stored.record.result]))
            )
    added = [after - before for before, after in pairwise(sizes)]
    assert max(added) - min(added) < 10


# ---------------------------------------------------------------------- the same next request, byte for byte

READ_BACK = """
import sys, json
import handrail as hr
from handrail.testing import ScriptedServer
from tests.sessions.test_sessions import World, OPTIONS
store, wire = sys.argv[1:]
with ScriptedServer(["Answered."], wire=wire) as server:
    with hr.SyncRuntime(World().tools, store=store, **OPTIONS) as runtime:
        hr.SyncSession(runtime, id="s", model=server.model).run("And now?")
    print(json.dumps(server.requests[-1]))
"""

OPTIONS = {"result_bytes": 1024, "budget": hr.Budget(context_tokens=900)}

SCRIPT = [
    [call("look", place="here"), call("page", number=1)],
    "Nothing there. 北京",
    hr.ToolCall("c_1", "note", "{'text': 'single quotes',}"),
    hr.ToolCall("c_2", "look", "no JSON at all"),
    hr.ToolCall("c_3", "nowhere", "{}"),
    [call("page", number=2), call("page", number=3)],
    "All done.",
    call("look", place="here"),
    call("look", place="here"),
    "Twice.",
]


@pytest.mark.parametrize("wire", testing.WIRES)
def test_another_process_makes_the_same_next_request(tmp_path, wire):
    here, there = tmp_path / "h.db", tmp_path / "copy.db"
    world = World()
    with ScriptedServer(SCRIPT, wire=wire) as server:
        with hr.SyncRuntime(
            world.tools, store=f"sqlite:///{here}", **OPTIONS
        ) as runtime:
            session = hr.SyncSession(
                runtime, id="s", model=server.model, system="Be short."
            )
            for question in ("Look.", "Note it.", "Look twice."):
                assert session.run(question).status == "done"
        there.write_bytes(here.read_bytes())
        with hr.SyncRuntime(
            world.tools, store=f"sqlite:///{here}", **OPTIONS
        ) as runtime:
            hr.SyncSession(runtime, id="s", model=server.model).run("And now?")
        requests = [json.dumps(each) for each in server.requests]
    program = [sys.executable, "-c", READ_BACK, f"sqlite:///{there}", wire]
    told = subprocess.run(
        program, capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert told.stdout.strip() == requests[-1]
    assert "read_result" in requests[-1]


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_read_back_is_what_the_model_has_read(world, store, wire):
    dialect = hr.dialect(wire)
    model = ScriptedModel(SCRIPT)
    with hr.SyncRuntime(world.tools, store=store, **OPTIONS) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model, system="Be short.")
        for question in ("Look.", "Note it.", "Look twice.", "And now?"):
            run = session.run(question)
            assert dialect.encode_request(session.messages()) == dialect.encode_request(
                run.messages
            )


def test_complaints_and_refused_answers_are_read_back(world, store):
    class Count(BaseModel):
        count: int

    model = ScriptedModel(
        ["Not yet.", call("look", place="a"), '{"no": 1}', '{"count": 2}', "Two."]
    )
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, model=model)
        run = session.run("Count.", output=Count, flow=[hr.Require("look")])
        assert run.output == Count(count=2)
        assert as_json(session.messages()) == as_json(run.messages)
        session.run("How many?")
    assert as_json(model.requests[-1].messages[:-1]) == as_json(run.messages)


# ---------------------------------------------------------------------- exactly one asks the next question


def test_of_two_that_ask_at_once_one_is_asked(world, store):
    asking, go_on = threading.Event(), threading.Event()

    def answer(_messages):
        asking.set()
        assert go_on.wait(30)
        return "Two."

    with (
        hr.SyncRuntime(world.tools, store=store) as one,
        hr.SyncRuntime(world.tools, store=store) as other,
    ):
        hr.SyncSession(one, id="s", model=ScriptedModel(["One."])).run("1?")
        runs = []
        first = hr.SyncSession(one, id="s", model=ScriptedModel(["One.", answer]))
        thread = threading.Thread(target=lambda: runs.append(first.run("2?")))
        thread.start()
        assert asking.wait(30)
        second = hr.SyncSession(other, id="s", model=ScriptedModel(["x"]))
        with pytest.raises(RunUnderWay, match="is under way already"):
            second.run("me too?")
        with pytest.raises(RunUnderWay, match="is under way already"):
            hr.SyncSession(one, id="s", model=ScriptedModel(["x"])).run("and me?")
        go_on.set()
        thread.join()
        assert [run.text for run in runs] == ["Two."]
        assert texts(second.messages()) == [
            "1?", "AssistantMessage", "2?", "AssistantMessage",
        ]  # fmt: skip


def test_of_two_that_have_read_the_same_state_one_is_asked(world, store):
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        model = ScriptedModel(["One.", "Two.", "Three."])
        first = runtime.run("1?", model=model)
        runtime.run("2?", model=model, after=first)
        with pytest.raises(RunUnderWay, match="has been asked another question since"):
            runtime.run("2 too?", model=model, after=first)
        runs = runtime.store
        stored = runs.load_run(first.id).result()
        runtime.run("3?", model=model, after=first.id)
        with pytest.raises(hr.errors.Fenced):
            runs.begin_run(stored.record, unchanged=True).result()


# ---------------------------------------------------------------------- rounds that have not answered


def test_a_round_that_waits_is_answered_before_the_next_question(world, store):
    model = ScriptedModel([call("pay", amount=5), "Paid.", "Yes."])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        assert session.run("Pay 5.").status == "waiting"
        with pytest.raises(
            hr.ConfigError, match=r"waiting for approval of pay: decide"
        ):
            session.run("Did you?")
        (question,) = runtime.store.list_approvals().result()
        runtime.store.decide(question.id, granted=True, by="anna").result()
        assert session.resume().text == "Paid."
        assert session.run("Did you?").text == "Yes."
    assert world.written == [5]


def test_what_a_cancelled_round_did_not_start_is_told_so(world, store):
    model = ScriptedModel([call("pay", amount=5), "Nothing was paid."])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        assert session.run("Pay 5.").status == "waiting"
        assert session.cancel(by="anna")
        run = session.run("Did you?")
        assert as_json(session.messages()) == as_json(run.messages)
    result = run.messages[2].result
    assert (result.failure.code, result.call_id) == (
        "CANCELLED", run.messages[1].turn.calls[0].id,
    )  # fmt: skip
    assert "before `pay` was started" in result.text
    assert world.written == []


@pytest.mark.parametrize("scope", ["", "acme"])
@pytest.mark.parametrize("name", ["refund", "bank/refund"])
def test_a_write_that_had_begun_before_the_round_was_cancelled_is_in_doubt(name, scope):
    store, paid = MortalStore(), []

    def pay_back(amount: int) -> None:
        paid.append(amount)

    refund = hr.FunctionTool(
        pay_back, name=name, description="Pay back.", effect="write"
    )
    model = ScriptedModel([call(name, amount=5), "I do not know."])
    with hr.SyncRuntime([refund], store=store, scope=scope) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        store.dies_at = 4  # begun, answered, claimed; the tool has run, and its result is not stored
        with pytest.raises(Died, match="settle"):
            session.run("Pay 5 back.")
    store.dies_at = None
    store.later_s += 3600.0
    with hr.SyncRuntime([refund], store=store, scope=scope) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        assert session.cancel(by="anna")
        run = session.run("Did you?")
    assert run.messages[2].result.failure.code == "IN_DOUBT"
    assert paid == [5]


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_a_question_without_any_answer_is_left_out(world, store, kind):
    with (
        ScriptedServer(["Yes."], faults=[Fault(401, "{}")]) as server,
        hr.SyncRuntime(
            world.tools, store=store if kind == "sqlite" else kind
        ) as runtime,
    ):
        session = hr.SyncSession(runtime, model=server.model, system="Be short.")
        assert session.run("Ready?").status == "failed"
        assert session.run("Ready?").text == "Yes."
        roles = [each["role"] for each in server.requests[-1]["messages"]]
    assert roles == ["system", "user"]


def test_a_round_whose_budget_was_used_up_is_gone_on_with(world, store):
    model = ScriptedModel([call("look", place="a"), "Nothing."])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, model=model)
        assert session.run("Look.", budget=hr.Budget(turns=1)).status == "budget"
        run = session.run("And?")
    assert (run.text, run.spent.turns) == ("Nothing.", 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 7))
def test_whatever_step_a_round_dies_at_nothing_is_lost_and_nothing_happens_twice(
    step, after
):
    store, world = MortalStore(), Tickets()
    script = [call("create_ticket", title="a"), "1", call("create_ticket", title="b")]
    model = ScriptedModel([*script, "2", "3"])

    def ask(question):
        with hr.SyncRuntime(world.tools, store=store) as runtime:
            session = hr.SyncSession(runtime, id="s", model=model)
            return session.run(question), session.messages()

    ask("one")
    store.count, store.dies_at, store.after = 0, step, after
    with suppress(Died):
        ask("two")
        assert step > 5  # the round has no further step
    store.dies_at = None
    store.later_s += 3600.0
    _, messages = ask("three")
    asked = [each.text for each in messages if isinstance(each, hr.UserMessage)]
    was_recorded = step > 1 or after
    assert asked == (["one", "two", "three"] if was_recorded else ["one", "three"])
    assert [title for _, title in world.tickets] == ["a", "b"]


def test_a_round_that_was_left_is_finished_by_its_own_model():
    store, world = MortalStore(), Tickets()
    ours = ScriptedModel(["1", "not asked", "3"])
    script = ["-", call("create_ticket", title="a"), "2", "-"]
    with (
        ScriptedServer(script) as server,
        hr.SyncRuntime(world.tools, store=store) as runtime,
    ):
        session = hr.SyncSession(runtime, id="s", model=ours)
        session.run("one")
        store.count, store.dies_at = 0, 4
        with pytest.raises(Died):
            session.run("two", model=server.model)
        store.dies_at = None
        store.later_s += 3600.0
        assert session.run("three").text == "3"
        assert [each.turn.text for each in session.messages()[1::2][-2:]] == ["2", "3"]
        asked = [each["messages"][-1]["role"] for each in server.requests]
    assert asked[0] == "user"
    assert set(asked[1:]) == {"tool"}
    assert len(ours.requests) == 2
    assert len(world.tickets) == 1


# ---------------------------------------------------------------------- fork, replay, refusals


def test_a_session_is_forked_after_a_round(world, store):
    model = ScriptedModel(
        [call("note", text="a"), "1", call("note", text="b"), "2", "3"]
    )
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        for question in ("Note a.", "Note b.", "Both?"):
            session.run(question)
        fork = session.fork(id="other", after_round=1)
        assert fork.messages() == session.messages()[:4]
        run = fork.run("Note b.")
        assert (run.status, run.round) == ("waiting", 2)
        assert "has written" in run.reason or "note" in run.reason
        assert len(session.fork().messages()) == len(session.messages())
        with pytest.raises(hr.ConfigError, match="has 3 rounds"):
            session.fork(after_round=4)
        with pytest.raises(RunNameTaken):
            session.fork(id="other")
    assert world.written == ["a", "b"]


def test_a_turn_of_a_later_round_is_asked_again(world, store):
    model = ScriptedModel(["1", call("look", place="a"), "2"])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        session.run("1?")
        session.run("2?")
        other = ScriptedModel(["1", "Otherwise."])
        run = runtime.fork("s", at_turn=2, model=other)
    assert (run.text, run.round) == ("Otherwise.", 2)
    assert texts(other.requests[0].messages) == ["1?", "AssistantMessage", "2?"]


def test_the_last_round_is_replayed_without_effects(world, store):
    model = ScriptedModel(["1", call("note", text="a"), "2"])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        session = hr.SyncSession(runtime, id="s", model=model)
        session.run("1?")
        run = session.run("2?")
        asked = len(model.requests)
        assert as_json(session.replay().messages) == as_json(run.messages)
        assert as_json(session.resume().messages) == as_json(run.messages)
        assert len(model.requests) == asked
    assert world.written == ["a"]


def test_another_tenants_session_is_none(world, store):
    model = ScriptedModel(["One.", "Two."])
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        for scope in ("a", "b"):
            session = hr.SyncSession(runtime, id="s", model=model, scope=scope)
            assert session.run(f"{scope}?").round == 1
            assert texts(session.messages())[0] == f"{scope}?"
        run = runtime.run("x", model=model, scope="a")
        with pytest.raises(hr.ConfigError, match="there is no run"):
            runtime.run("y", model=model, scope="b", after=run.id)
        with pytest.raises(hr.ConfigError, match="there is no run"):
            runtime.run("y", model=model, after=run)


@pytest.mark.parametrize(("options", "sentence"), [
    ({"after": 5}, "`after` is a `Run` or the name of one"),
    ({"after": "r", "system": "x"}, "keeps the instructions"),
    ({"after": "r", "run_id": "x"}, "keeps its name"),
    ({"after": "no such"}, "there is no run 'no such'"),
])  # fmt: skip
def test_what_cannot_be_gone_on_with_is_refused_in_a_sentence(
    world, store, options, sentence
):
    with (
        hr.SyncRuntime(world.tools, store=store) as runtime,
        pytest.raises(hr.ConfigError, match=sentence),
    ):
        runtime.run("?", model=ScriptedModel(["x"]), **options)


def test_a_store_without_runs_needs_the_run_itself(world):
    with (
        hr.SyncRuntime(world.tools) as runtime,
        pytest.raises(hr.ConfigError, match="pass the `Run` itself"),
    ):
        runtime.run("?", model=ScriptedModel(["x"]), after="r_1")


def test_each_session_takes_a_runtime_of_its_own_kind():
    with (
        hr.SyncRuntime() as runtime,
        pytest.raises(hr.ConfigError, match="SyncSession"),
    ):
        hr.Session(runtime)
    with pytest.raises(hr.ConfigError, match="there is Session"):
        hr.SyncSession(hr.Runtime())


def test_a_round_of_a_newer_version_is_refused(world, store):
    with hr.SyncRuntime(world.tools, store=store) as runtime:
        run = runtime.run("?", model=ScriptedModel(["x"]))
        stored = runtime.store.load_run(run.id).result()
    from handrail.engine.resume import check_answered

    newer = replace(stored, record=replace(stored.record, journal_v=99))
    with pytest.raises(JournalMismatch, match="newer handrail"):
        check_answered(newer, run)
