"""A deployment for tests of kept things: a store in a file, tools, a scripted model; see the fixture `deployed`."""

import json
import os
import subprocess
import sys

from handrail.stores.sqlite import SqliteStore
from handrail.testing import call
from tests.support.terminals import PATIENCE_S

ASKING = [
    [call("get_order", order_id="A-1"), call("delete_order", order_id="A-1")],
    "It is gone.",
]
"""A script whose second call waits for a person."""

PAID = [call("get_order", order_id="A-1"), "It is paid."]


class Deployment:
    """The command line of one deployment: its store, its tools, a model that says what the script tells it."""

    def __init__(self, cli, place, tools, server):
        self._cli, self.place, self.tools, self.server = cli, place, tools, server

    def __call__(self, *words, stdin=None):
        """Run `handrail` in this process."""
        return self._cli(*words, stdin=stdin)

    def process(self, *words):
        """Run `handrail` as a process of its own, without a terminal, to its end."""
        with self.started(*words) as program:
            out, err = program.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(words, program.returncode, out, err)

    def started(self, *words):
        """Start `handrail` as a process of its own, without a terminal."""
        ours = ("HANDRAIL_", "OPENAI_", "COLUMNS")
        known = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ours)
        }
        told = {"HANDRAIL_STORE": self.place, "HANDRAIL_MODEL": self.server.model}
        return subprocess.Popen(
            [sys.executable, "-m", "handrail", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, encoding="utf-8", env={**known, **told},
        )  # fmt: skip

    def begin(self, *words):
        """Begin a run; return its id and how it went."""
        result = self("run", "Delete A-1.", "--tools", self.tools, "--json", *words)
        return json.loads(result.stdout)["run_id"], result

    def json(self, *words):
        """Return the document that a command prints."""
        return json.loads(self(*words, "--json").stdout)

    def question(self):
        """Return the one open question."""
        (question,) = self.json("approvals", "list")["questions"]
        return question


def recorded(deployment, run):
    with SqliteStore(deployment.place.removeprefix("sqlite:")) as store:
        return store.load_run(run).result(10)
