"""Answers of providers whose side handrail does not speak, written down as their documents spell them.

A name ends in what is said: `rich` is `RICH` of the contract, `weather` is the call of `tests.support.weather`,
`text` is the words `It is warm.` Each is there whole (`.json`) and as a stream (`.txt`).
"""

from __future__ import annotations

import json
from pathlib import Path

from handrail.errors import Json
from handrail.testing import Fault
from handrail.testing.contracts.dialects import DialectContract

HERE = Path(__file__).parent

PROVIDERS = ("gemini", "gemini-interactions", "cohere")
"""Those that can be asked; Bedrock has a dialect alone."""


def body(wire: str, said: str) -> dict[str, Json]:
    """Return an answer as the provider sends it whole."""
    return json.loads((HERE / f"{wire}.{said}.json").read_text())


def events(wire: str, said: str) -> str:
    """Return the same answer as the provider streams it."""
    return (HERE / f"{wire}.{said}.txt").read_text()


def answer(wire: str, said: str, *, streamed: bool = False) -> Fault:
    """Return the answer for `ScriptedServer(faults=...)`, which sends it as it is."""
    if streamed:
        kind = {"content-type": "text/event-stream"}
        return Fault(200, events(wire, said), headers=kind)
    return Fault(200, json.dumps(body(wire, said)))


class RecordedContract(DialectContract):
    """The laws of a dialect of which answers are here."""

    def body(self) -> dict[str, Json]:
        return body(self.dialect.name, "rich")

    def events(self) -> str:
        return events(self.dialect.name, "rich")
