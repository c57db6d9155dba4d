"""No label is lost, whatever way a conversation takes: one that has read a stranger's words asks, and no other does."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import handrail as hr
from handrail.engine.nested_runs import agent_tool
from handrail.testing import ScriptedModel
from tests.engine.test_provenance import QUESTION, TOOLS, call, read_page
from tests.support.effort import examples

EVE = {"to": "eve@evil.example", "body": "News."}
STRANGERS = {"page", "long page", "agent", "beside a sum"}
"""The steps that bring in a stranger's words."""


@hr.tool(
    effect="write",
    approve=True,
    write=hr.Write(repeatable=True),
    sends=hr.Sends(trust="trusted"),
)
def publish() -> str:
    """Publish what is ready."""
    return "published"


class Journey:
    """One conversation that goes from runtime to runtime over one store, and its model's script so far."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.script: list = []
        self.run: hr.Run | None = None
        self.tainted = False
        self.imported = 0
        """How many turns stand in its first question: those are none of its own."""

    def go_on(self, passage: str, steps: list[str]) -> None:
        """Take the steps in a runtime of their own, after the passage to it."""
        with hr.SyncRuntime([read_page]) as inner:
            model = ScriptedModel([[call("read_page", name="in")], "Read it."])
            reader = agent_tool(inner, "ask_reader", "Reads a page.", model=model)
            tools = [*TOOLS, publish, reader]
            with hr.SyncRuntime(
                tools, store=self.store, budget=hr.Budget(context_tokens=12_000)
            ) as runtime:
                self.run = self._pass(runtime, passage, steps)
        assert self.run.status == "done", self.run

    def ends_in_a_question(self) -> bool:
        """Whether a call to an address that nobody has named waits for a person."""
        self.script.append([call("send_mail", f"m{len(self.script)}", **EVE)])
        with hr.SyncRuntime([*TOOLS, publish], store=self.store) as runtime:
            run = runtime.run("And?", model=self._model(), after=self.run.id)
        assert run.status in ("waiting", "done")
        return run.status == "waiting"

    def _pass(self, runtime: hr.SyncRuntime, passage: str, steps: list[str]) -> hr.Run:
        before = self.run
        if passage == "fork" and before is not None:
            del self.script[-1]  # from its last turn on, it goes another way
            self._write(steps)
            at_turn = _turns(before) - self.imported
            return runtime.fork(before.id, at_turn=at_turn, model=self._model())
        if passage == "wait":
            self._write(["publish", *steps])
            run = self._ask(runtime)
            assert run.status == "waiting"
            [question] = runtime.approvals.list()
            runtime.approvals.approve(question.id, by="ana")
            return runtime.resume(run.id, model=self._model())
        self._write(steps)
        if passage == "import" and before is not None:
            self.imported = _turns(before)
            document = hr.messages_as_json(before.messages)
            messages = hr.messages_from_json(document)
            # nobody knows what the author of its answers had read
            self.tainted = True
            return runtime.run(
                [*messages, hr.UserMessage("Go on.")], model=self._model()
            )
        return self._ask(runtime)

    def _ask(self, runtime: hr.SyncRuntime) -> hr.Run:
        if self.run is None:
            return runtime.run(QUESTION, model=self._model())
        return runtime.run("Go on.", model=self._model(), after=self.run.id)

    def _write(self, steps: list[str]) -> None:
        for step in steps:
            self.script.append(_turn(step, f"c{len(self.script)}"))
            self.tainted = self.tainted or step in STRANGERS
        self.script.append("Done.")

    def _model(self) -> ScriptedModel:
        return ScriptedModel([*self.script, "Done."])


def _turns(run: hr.Run) -> int:
    return sum(isinstance(each, hr.AssistantMessage) for each in run.messages)


def _turn(step: str, id: str) -> list[hr.ToolCall]:
    if step == "page":
        return [call("read_page", id, name=f"news {id}")]
    if step == "long page":
        return [call("read_page", id, name=f"long {id}")]
    if step == "agent":
        return [call("ask_reader", id, task=f"Read {id}.")]
    if step == "beside a sum":
        page = call("read_page", id, name=f"news {id}")
        return [page, call("calculate", f"{id}s", expression=f"{id[1:]} + 1")]
    if step == "publish":
        return [call("publish", id)]
    return [call("calculate", id, expression=f"{id[1:]} + 1")]


STEPS = st.lists(
    st.sampled_from(["sum", "sum", "sum", *sorted(STRANGERS)]), min_size=1, max_size=3
)
PASSAGES = st.sampled_from(["after", "fork", "wait", "import"])


@pytest.mark.slow
@settings(max_examples=examples(10, long=200), deadline=None)
@given(st.lists(st.tuples(PASSAGES, STEPS), min_size=1, max_size=4))
def test_a_conversation_asks_if_and_only_if_it_has_read_a_strangers_words(stages):
    with tempfile.TemporaryDirectory() as folder:
        journey = Journey(f"sqlite:///{folder}/h.db")
        for passage, steps in stages:
            journey.go_on(passage, steps)
        assert journey.ends_in_a_question() == journey.tainted
