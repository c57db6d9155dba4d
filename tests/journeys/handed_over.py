"""A process that is killed in a call that somebody else keeps, or takes it over; started by `test_handed_over`."""

import json
import os
import signal
import sys
from pathlib import Path

import handrail as hr

FOLDER, KIND, DIES = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CALL_ID = sys.argv[4] if len(sys.argv) > 4 else "call_1"
EFFECTS = FOLDER / "effects"


def look(arguments, context):
    return hr.Found("verified") if EFFECTS.exists() else hr.NotFound()


HOW = {
    "none": {},
    "key": {"replay": "key", "key": "note:{text}"},
    "verify": {"verify": look},
    "asked": {"verify": look, "approve": True},
    "repeatable": {"write": hr.Write(repeatable=True)},
}


@hr.tool(effect="write", timeout_s=5, **HOW[KIND])
def note(text: str) -> str:
    """Write a note."""
    if DIES == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    if DIES == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return "noted"


with hr.SyncRuntime(
    [note], store=f"sqlite:///{FOLDER}/h.db", approver=lambda asked: True
) as runtime:
    calls = [hr.ToolCall(CALL_ID, "note", '{"text": "a"}')]
    (result,) = runtime.calls(calls, run="thread-1")
    print(json.dumps(result.failure.code if result.failure else result.value))
