"""A person at a terminal: Ctrl-C, Ctrl-D, approvals. Each test runs the real program in a terminal of its own."""

from contextlib import contextmanager

import pytest

from handrail.testing import ScriptedServer, call
from tests.support.terminals import PATIENCE_S, program_in_terminal

TOOLS = '''
import asyncio
from pathlib import Path
import handrail as hr

@hr.tool(effect="read", timeout_s=60)
async def look(place: str) -> str:
    """Look for ever."""
    print("inside look", flush=True)
    await asyncio.sleep(3600)

@hr.tool(effect="write", timeout_s=60)
async def save(place: str) -> str:
    """Save, once the door is open."""
    print("inside save", flush=True)
    while not Path("door").exists():
        await asyncio.sleep(0.01)
    return "saved"

@hr.tool(effect="destructive")
def delete(place: str) -> str:
    """Delete a place."""
    return f"deleted {place}"
'''

PROMPT = r"\n> "


@pytest.fixture
def handrail(tmp_path):
    """Start `handrail` in a terminal, with tools that wait and a model that says what the script tells it."""
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")

    @contextmanager
    def start(script, *words, pause_s=0.0):
        with (
            ScriptedServer(script, pause_s=pause_s) as server,
            program_in_terminal(
                *words, "--tools", "tools.py", cwd=tmp_path, HANDRAIL_MODEL=server.model
            ) as (
                person,
                program,
            ),
        ):
            start.requests = server.requests
            yield person, program

    start.door = tmp_path / "door"
    return start


def test_ctrl_c_cancels_a_run_and_every_call_is_told(handrail):
    with handrail([call("look", place="here"), "Never said."], "run", "Look!") as (
        person,
        program,
    ):
        person.reads_until("inside look")
        person.presses_ctrl_c()
        person.reads_until("stopping.*CANCELLED.*the run was cancelled")
        assert program.wait(PATIENCE_S) == 130
    assert "Traceback" not in person.seen


def test_the_first_ctrl_c_waits_for_a_write_that_is_under_way(handrail):
    with handrail([call("save", place="here"), "Never said."], "run", "Save!") as (
        person,
        program,
    ):
        person.reads_until("inside save")
        person.presses_ctrl_c()
        person.reads_until("stopping")
        handrail.door.touch()
        person.reads_until("✓ save .*the run was cancelled")
        assert program.wait(PATIENCE_S) == 130


def test_the_second_ctrl_c_leaves_at_once(handrail):
    with handrail([call("save", place="here"), "Never said."], "run", "Save!") as (
        person,
        program,
    ):
        person.reads_until("inside save")
        person.presses_ctrl_c()
        person.reads_until("stopping")
        person.presses_ctrl_c()
        assert program.wait(PATIENCE_S) == 130
        assert "Traceback" not in person.reads_all()


def test_ctrl_c_ends_a_call_by_hand(handrail):
    with handrail(["unused"], "call", "look", '{"place": "here"}') as (person, program):
        person.reads_until("inside look")
        person.presses_ctrl_c()
        assert program.wait(PATIENCE_S) == 130
        assert "Traceback" not in person.reads_all()
        assert "taken effect" not in person.seen  # a read has none


def test_ctrl_c_during_a_write_by_hand_says_that_it_may_have_taken_effect(handrail):
    with handrail(["unused"], "call", "save", '{"place": "here"}') as (person, program):
        person.reads_until("inside save")
        person.presses_ctrl_c()
        person.reads_until(
            "`save` was under way and may have taken effect.*interrupted"
        )
        assert program.wait(PATIENCE_S) == 130


def test_in_a_chat_ctrl_c_cancels_the_answer_and_at_the_prompt_leaves(handrail):
    with handrail(
        [call("look", place="here"), "I know what was cancelled."], "chat"
    ) as (person, _):
        person.reads_until(PROMPT)
        person.types("Look!\n")
        person.reads_until("inside look")
        person.presses_ctrl_c()
        person.reads_until(f"the run was cancelled.*{PROMPT}")
        person.types("What happened?\n")
        person.reads_until(f"I know what was cancelled.*{PROMPT}")
        assert person.leaves_with_ctrl_c() == 130
    # The call and its end are still known to the model, and nothing is left unanswered.
    roles = [message["role"] for message in handrail.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


def test_ctrl_d_leaves_a_chat(handrail):
    with handrail(["unused"], "chat") as (person, program):
        person.reads_until(PROMPT)
        person.types("\x04")
        assert program.wait(PATIENCE_S) == 0


def test_an_answer_streams_into_the_chat(handrail):
    with handrail(
        ["one two three four five six seven eight"], "chat", pause_s=0.01
    ) as (person, _):
        person.reads_until(PROMPT)
        person.types("Count!\n")
        person.reads_until(f"one two three four five six seven eight\n{PROMPT}")


@pytest.mark.parametrize(("typed", "says", "code"), [
    ("a\n", "approved by .*deleted here", 0),
    ("d\nnot today\n", "denied by .*: not today", 5),
    # the person has gone
    ("\x04", "nobody is there.*waiting for approval of delete", 3),
])  # fmt: skip
def test_approval_is_asked_in_the_terminal(handrail, typed, says, code):
    with handrail(
        [call("delete", place="here"), "Done, or not."], "run", "Delete!"
    ) as (person, program):
        person.reads_until(r"\(e\)dit\? ")
        person.types(typed)
        person.reads_until(says)
        assert program.wait(PATIENCE_S) == code


def test_ctrl_c_takes_a_question_back_and_the_next_line_is_the_chats(handrail):
    with handrail(
        [
            call("delete", place="here"),
            lambda messages: f"You said {messages[-1].text}.",
        ],
        "chat",
    ) as (
        person,
        program,
    ):
        person.reads_until(PROMPT)
        person.types("Delete!\n")
        person.reads_until(r"\(e\)dit\? ")
        person.presses_ctrl_c()
        person.reads_until(f"CANCELLED.*{PROMPT}")
        person.types("a\n")  # would have approved
        person.reads_until(f"You said a\\..*{PROMPT}")
        person.types("\x04")
        assert program.wait(PATIENCE_S) == 0
    assert "deleted here" not in person.seen
