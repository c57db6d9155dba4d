"""A process that asks a session the next question, and may be killed in it; started by `test_session_turns`."""

import json
import os
import signal
import sys
from pathlib import Path

import handrail as hr
from handrail.testing import ScriptedModel, call

STORE, FOLDER, DIES, QUESTION = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
EFFECTS = FOLDER / "effects"


def die_at(place):
    if place == DIES:
        os.kill(os.getpid(), signal.SIGKILL)


def look(arguments, context):
    happened = EFFECTS.exists() and arguments["text"] in EFFECTS.read_text().split()
    return hr.Found("verified") if happened else hr.NotFound()


@hr.tool(effect="write", verify=look, timeout_s=5)
def note(text: str) -> str:
    """Write a note."""
    die_at("before effect")
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    die_at("after effect")
    return "noted"


def answer(number):
    def say(_messages):
        die_at("before answer")
        return f"answer {number}"

    return say


def write(number):
    def ask(_messages):
        die_at("before call")
        return call("note", text=f"n{number}")

    return ask


script = [line for number in range(1, 10) for line in (write(number), answer(number))]
with hr.SyncRuntime([note], store=STORE) as runtime:
    session = hr.SyncSession(runtime, id=FOLDER.name, model=ScriptedModel(script))
    run = session.resume() if QUESTION == "resume" else session.run(QUESTION)
    die_at("after the round")
    said = [
        each.text if isinstance(each, hr.UserMessage) else each.turn.text
        for each in session.messages()
        if not isinstance(each, hr.ToolMessage)
    ]
    print(json.dumps({"round": run.round, "text": run.text, "said": said}))
