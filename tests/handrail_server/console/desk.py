"""A server with something to look at: `handrail serve` as a process, and runs that a scripted model went through."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from handrail.calls import ToolCall
from handrail.messages import Message, Turn, Usage, UserMessage
from handrail.testing import Line, ScriptedServer, as_turn, call
from tests.handrail_server.console.tools import HOSTILE

TOOLS = Path(__file__).with_name("tools.py")

SLOW = "api-gateway is slow. Why?"
TICKET = "Create a ticket about the pool."
LOST = "Create the ticket that is lost."
HARM = f"What does this page say? {HOSTILE}"
RESTART = "Restart search."
QUOTA = "Set a large quota."
RESTART_HARM = "Restart what the page names."
LARGE = 12345678901234567890
"""A number that JavaScript alone would round."""


def _calls(*calls: ToolCall, text: str = "", tokens: int = 900) -> Turn:
    usage = Usage(tokens, 48 + len(text), cached_tokens=max(0, tokens - 912))
    return Turn(text, calls=list(calls), finish="calls", usage=usage)


_RESTART = {"service": "api-gateway", "reason": "the pool leaks; P99 is 2.81 s"}
SCRIPTS: Mapping[str, Sequence[Line]] = {
    SLOW: [
        _calls(
            call("get_logs", service="api-gateway", tail_lines=900),
            call("get_metrics", service="api-gateway"),
            text="I am looking at the logs and the metrics together.",
        ),
        _calls(
            ToolCall("c3", "get_logs", "{'service': 'api-gateway', 'tail_lines': 5,}"),
            tokens=6120,
        ),
        _calls(
            call("get_metrics", service="api-gateway", metric="latency"), tokens=6480
        ),
        _calls(
            call("get_metrics", service="api-gateway", metric="latency_p99"),
            tokens=6730,
        ),
        _calls(
            call("restart_service", **_RESTART),
            text="The pool is exhausted. A restart is the quickest cure.",
            tokens=6940,
        ),
        "The pool was exhausted; api-gateway was restarted, and P99 is down.",
    ],
    TICKET: [
        call("create_ticket", title="pool", body="512 of 512 in use"),
        "The ticket is created.",
    ],
    LOST: [
        call("create_ticket", title="lost", body=HOSTILE),
        "Nobody knows whether the ticket was created.",
    ],
    HARM: [call("read_page", address=HOSTILE), f"It says: {HOSTILE}"],
    RESTART: [
        call("restart_service", service="search", reason="it is stuck"),
        "search was restarted.",
    ],
    QUOTA: [call("set_quota", account="a-7", max_bytes=LARGE), "The quota is set."],
    RESTART_HARM: [
        call("restart_service", service="payments", reason=HOSTILE),
        "Done.",
    ],
}


def answer(messages: Sequence[Message]) -> Turn:
    """Answer as the script of the conversation's question says."""
    question = next(m.text for m in messages if isinstance(m, UserMessage))
    script = SCRIPTS.get(question, [f"Nobody wrote a script for: {question}"])
    asked = sum(type(message).__name__ == "AssistantMessage" for message in messages)
    return as_turn(script[min(asked, len(script) - 1)], messages)


class Desk:
    """A running server.

    Attributes:
        url: Of the console, with a slash at its end.
        runs: The names of its runs by question.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") + "/"
        self.runs: Mapping[str, str] = {}

    def headers_of(self, path: str) -> Mapping[str, str]:
        """Return the headers of an answer, their names in small letters."""
        with urlopen(f"{self.url}{path}", timeout=30) as response:
            return {name.lower(): value for name, value in response.headers.items()}

    def get(self, path: str) -> Any:
        """Return what the API answers."""
        return self._send(Request(f"{self.url}api/v1{path}"))

    def post(self, path: str, body: Any) -> Any:
        """Send a value to the API and return what it answers."""
        return self._send(
            Request(
                f"{self.url}api/v1{path}",
                json.dumps(body).encode(),
                {"content-type": "application/json"},
            )
        )

    def _send(self, request: Request) -> Any:
        with urlopen(request, timeout=30) as response:
            return json.load(response)

    def start(self, question: str) -> str:
        """Start a run and return its name."""
        return str(self.post("/runs", {"question": question})["id"])

    def wait_for_end(self, run: str) -> dict[str, Any]:
        """Return the run once it has ended or waits for a person."""
        return wait_until(
            lambda: self.get(f"/runs/{run}")["run"],
            lambda found: found["status"] not in ("running", "queued"),
        )

    def carry_out(self, question: str) -> str:
        """Start a run, wait for it, and return its name."""
        run = self.start(question)
        self.wait_for_end(run)
        return run


def wait_until(read: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """Return what is read once it is so."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = read()
        if is_so(found):
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within 30 s: {found}")


@contextmanager
def open_desk(folder: Path, *options: str) -> Iterator[Desk]:
    """Serve an empty store in a folder, with a scripted model."""
    with ScriptedServer([answer] * 40) as model:
        command = [
            sys.executable, "-m", "handrail", "serve", "--http", "0", "--json",
            "--store", f"sqlite:///{folder / 'desk.db'}",
            "--tools", str(TOOLS), "--model", model.model, *options,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                yield Desk(json.loads(line)["url"])
            finally:
                process.terminate()


def furnish(desk: Desk) -> dict[str, str]:
    """Carry out a run of every kind and return their names by question."""
    return {question: desk.carry_out(question) for question in SCRIPTS}
