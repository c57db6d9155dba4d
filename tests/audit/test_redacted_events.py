"""Events without known secrets, whatever kind of sequence a tool's value is."""

from typing import NamedTuple

from handrail.audit.redacted_events import RedactedEvents
from handrail.calls import ToolCall
from handrail.core.redaction import KnownSecrets
from handrail.events import FinishedLate


class Pair(NamedTuple):
    user: str
    password: str


def test_no_kind_of_sequence_hides_a_secret_from_the_redactor():
    told = []
    redacted = RedactedEvents(KnownSecrets(["hunter2"]), told.append)
    value = {"pair": Pair("maria", "hunter2"), "list": ["hunter2"], "other": (1, 2)}
    redacted(FinishedLate(ToolCall("c", "look"), value))
    assert "hunter2" not in repr(told)
    assert "maria" in repr(told)
