"""One secret in every place that a run has, and none of it in what others read: events, wire, journal, audit, logs."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sqlite3
import subprocess
import sys
from itertools import pairwise
from typing import Annotated
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import asdict

import handrail as hr
from handrail.audit.redacted_events import RedactedEvents
from handrail.core.redaction import KnownSecrets
from handrail.events import (
    AttemptFailed,
    CallFinished,
    HttpExchange,
    ModelAnswered,
    Streamed,
)
from handrail.journal.sealed_store import Seals
from handrail.messages import TextDelta, Turn
from handrail.testing import ScriptedModel, ScriptedServer, call
from handrail.testing.cassettes import Cassette
from tests.observers.support import Recorded

CANARY = 'c4nAry/7"+ü=94 31'
"""With letters that JSON, URLs and HTML escape."""
RAW = CANARY.encode()
FORMS = {
    CANARY, json.dumps(CANARY)[1:-1], json.dumps(CANARY, ensure_ascii=False)[1:-1], quote(RAW), quote(RAW, safe=""),
    RAW.hex(), RAW.hex().upper(), base64.b64encode(RAW).decode().rstrip("="),
    base64.urlsafe_b64encode(RAW).decode().rstrip("="),
    "c4nAry",
}  # fmt: skip


def check_clean(text, where=""):
    """Check that no form of the canary is in a text."""
    found = [form for form in FORMS if form in text]
    assert not found, f"{where}: {text[max(0, text.find(found[0]) - 80) :][:200]}"


def all_texts(value):
    """Yield every text in an event, also those that no `repr` shows."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        for part in asdict(value).values():
            yield from all_texts(part)
    elif isinstance(value, dict):
        yield from all_texts([*value, *value.values()])
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from all_texts(part)
    else:
        yield repr(value)


def places(key):
    """What a careless tool returns: the canary in every place of a value."""
    return {
        "text": f"logged in with {key}",
        "header": {"Authorization": f"Basic {base64.b64encode(f'me:{key}'.encode()).decode()}"},
        "url": f"https://api.example/?q={quote(key, safe='')}&r={quote(key)}",
        "hex": key.encode().hex(),
        "json": json.dumps({"key": key}),
        "twice": json.dumps(json.dumps({"key": key})),
        "list": [["deep", [key]]],
        f"name {key}": 1,
        "long": f"{'x' * 2000} {key} {'y' * 40_000} {key}",
    }  # fmt: skip


class Vault:
    """Tools that let out what they are given, each in its own way."""

    def __init__(self):
        self.got = []
        self.tools = [
            hr.FunctionTool(self.show, effect="read"),
            hr.FunctionTool(self.fail, effect="read"),
            hr.FunctionTool(self.crash, effect="read"),
            hr.FunctionTool(self.store, effect="write", key="store:{place}"),
            hr.FunctionTool(self.pieces, effect="read"),
        ]

    def show(self, key: Annotated[str, hr.Injected], context: hr.Context) -> dict:
        """Show."""
        context.progress(1, 2, f"with {key}")
        return places(key)

    def fail(self, key: Annotated[str, hr.Injected]) -> str:
        """Fail."""
        raise hr.ToolError("DENIED", f"{key} is wrong", suggestion=f"not {key}", details={"key": key})  # fmt: skip

    def crash(self, key: Annotated[str, hr.Injected]) -> str:
        """Crash."""
        raise RuntimeError(f"postgres://me:{key}@db")

    def store(self, place: int, name: str, key: Annotated[str, hr.Injected]) -> dict:
        """Store."""
        self.got.append(name)
        return places(key)

    def pieces(self, key: Annotated[str, hr.Injected]):
        """Give pieces."""
        yield from (key[:5], key[5:], key)


SCRIPT = [
    [call("show"), call("fail"), call("crash"), call("store", place=1, name=f"a {CANARY} b"), call("pieces")],
    [call("store", place=2, name=quote(CANARY, safe=""))],
    f"Done with {CANARY}, that is {RAW.hex()}.",
]  # fmt: skip
QUESTION = f"My password is {CANARY}; store it."


def rows(file):
    """Return all that a store holds, as text."""
    with sqlite3.connect(file) as database:
        tables = [
            name
            for (name,) in database.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table'"
            )
        ]
        return {name: "\n".join(map(repr, database.execute(f"SELECT * FROM {name}"))) for name in tables}  # fmt: skip


@pytest.fixture
def played(tmp_path, caplog):
    """A run over a real wire with everything in it, and what it left."""
    caplog.set_level(logging.DEBUG, "handrail")
    file = tmp_path / "handrail.db"
    vault, events, traced = Vault(), [], Recorded()
    with (
        ScriptedServer(SCRIPT) as server,
        hr.SyncRuntime(
            vault.tools,
            store=f"sqlite:///{file}",
            secrets=[hr.Secret.of(CANARY)],
            observers=[events.append, traced.tracing(content=True)],
        ) as runtime,
    ):
        inject = {"key": hr.Secret.of(CANARY)}
        run = runtime.run(
            QUESTION, model=server.model, inject=inject, options=hr.Options(stream=True)
        )
    return run, vault, events, file, traced, caplog.text


def test_no_event_shows_it(played):
    run, _, events, *_ = played
    assert run.status == "done"
    assert {type(each) for each in events} >= {HttpExchange, Streamed, CallFinished, AttemptFailed}  # fmt: skip
    for event in events:
        check_clean("\n".join(all_texts(event)), type(event).__name__)
    streamed = "".join(
        each.delta.text
        for each in events
        if isinstance(each, Streamed) and isinstance(each.delta, TextDelta)
    )
    assert streamed == "Done with ***, that is ***."


def test_no_result_shows_it_to_the_model(played):
    run, vault, *_ = played
    for message in run.messages:
        if isinstance(message, hr.ToolMessage):
            check_clean(message.result.text, message.result.name)
    # what the model wrote itself is what was done
    assert vault.got == [f"a {CANARY} b", quote(CANARY, safe="")]


def test_no_table_holds_it(played):
    _, _, _, file, *_ = played
    held = rows(file)
    assert held["steps"] and held["audit"] and held["runs"] and held["effects"]
    for table, text in held.items():
        check_clean(text, table)
        check_clean(text.encode().decode("unicode_escape", "replace"), table)


def test_no_span_holds_it_where_contents_are_captured(played):
    traced = played[4]
    spans = [span.to_json() for span in traced.spans]
    assert any("gen_ai.tool.call.result" in span for span in spans)
    for span in spans:
        check_clean(span, "span")
        check_clean(json.dumps(json.loads(span), ensure_ascii=False), "span")


def test_no_log_line_shows_it(played):
    assert "crash" in played[-1]
    check_clean(played[-1], "log")


def test_no_command_prints_it(played):
    run, _, _, file, *_ = played
    for words in (
        ["runs", "show", run.id, "-v"], ["runs", "export", run.id], ["audit", "export"], ["ledger", "list", "--json"],
        ["runs", "replay", run.id],
    ):  # fmt: skip
        ended = subprocess.run(
            [sys.executable, "-m", "handrail", *words, "--store", f"sqlite:///{file}"],
            capture_output=True,
            text=True,
        )
        check_clean(ended.stdout + ended.stderr, " ".join(words))


def test_who_knows_the_secret_resumes_and_reads_the_run_as_it_was(played):
    run, _, _, file, *_ = played
    with hr.SyncRuntime(
        Vault().tools, store=f"sqlite:///{file}", secrets=[CANARY]
    ) as runtime:
        inject = {"key": CANARY}
        again = runtime.resume(run.id, model=ScriptedModel(SCRIPT), inject=inject)
    assert [str(each) for each in again.messages] == [str(each) for each in run.messages]  # fmt: skip
    assert again.text == run.text == SCRIPT[-1]


def test_a_key_of_a_write_shows_it_neither_in_events_nor_in_the_audit_log(tmp_path):
    file, events = tmp_path / "handrail.db", []

    @hr.tool(effect="write", key="log-in:{user}:{password}")
    def log_in(user: str, password: str) -> str:
        """Log in."""
        return "in"

    with hr.SyncRuntime(
        [log_in], store=f"sqlite:///{file}", secrets=[CANARY], observers=[events.append]
    ) as runtime:
        assert runtime.call("log_in", {"user": "me", "password": CANARY}).ok
    for event in events:
        check_clean("\n".join(all_texts(event)), type(event).__name__)
    check_clean(rows(file)["audit"], "audit")


def test_a_call_whose_secret_nobody_knows_any_more_is_not_made(tmp_path):
    file = f"sqlite:///{tmp_path / 'handrail.db'}"
    got = []

    @hr.tool(effect="write", key="log-in:{user}", approve=True)
    def log_in(user: str, password: str) -> str:
        """Log in."""
        got.append(password)
        return "in"

    script = [[call("log_in", user="me", password=CANARY)], "Done."]
    with hr.SyncRuntime([log_in], store=file, secrets=[CANARY]) as runtime:
        run = runtime.run("Log in.", model=ScriptedModel(script), run_id="r-1")
        assert run.status == "waiting"
        [question] = runtime.approvals.list()
        runtime.approvals.approve(question.id, by="me")
    with (
        hr.SyncRuntime([log_in], store=file) as runtime,
        pytest.raises(hr.errors.JournalMismatch, match="secret that this runtime"),
    ):
        runtime.resume("r-1", model=ScriptedModel(script))
    assert got == []
    with hr.SyncRuntime([log_in], store=file, secrets=[CANARY]) as runtime:
        assert runtime.resume("r-1", model=ScriptedModel(script)).status == "done"
    assert got == [CANARY]


def test_no_tape_holds_it_and_it_plays(tmp_path):
    file = tmp_path / "tape.json"
    for record in (True, False):
        vault, cassette = Vault(), Cassette(file, record=record)
        with cassette.runtime(vault.tools, secrets=[hr.Secret.of(CANARY)]) as runtime:
            model = cassette.model(ScriptedModel(SCRIPT))
            run = runtime.run(QUESTION, model=model, inject={"key": CANARY})
        cassette.close()
        assert run.status == "done"
    check_clean(file.read_text(), "tape")


def test_an_exception_that_reaches_the_program_does_not_hold_it():
    async def main():
        with ScriptedServer([]) as server:
            async with hr.Runtime([], secrets=[CANARY]) as runtime:
                model = f"{server.model}?key={quote(CANARY, safe='')}"
                return await runtime.run("?", model=model)

    try:
        run = asyncio.run(main())
        check_clean(repr(run.reason), "reason")
    except hr.HandrailError as error:
        check_clean(str(error), "exception")


# ---------------------------------------------------------------------- pieces of a stream


def stream(secrets, pieces):
    """Return what an observer reads of an answer in pieces."""
    told = []
    events = RedactedEvents(KnownSecrets(secrets), told.append)
    for piece in pieces:
        events(Streamed(TextDelta(piece)))
    events(ModelAnswered(1, Turn("")))
    return "".join(each.delta.text for each in told if isinstance(each, Streamed))


@given(
    st.lists(st.text('ab-1"é', min_size=6, max_size=9), min_size=1, max_size=3),
    st.data(),
)
def test_an_answer_in_pieces_is_redacted_as_the_whole_one(secrets, data):
    known = KnownSecrets(secrets)
    parts = st.one_of(st.sampled_from(known.forms), st.text('ab-1"é', max_size=4))
    text = "".join(data.draw(st.lists(parts, max_size=6)))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    cuts = sorted({0, len(text), *places})
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    assert not any(form in stream(secrets, pieces) for form in known.forms)
    if len(secrets) == 1 and len(known.forms) and "*" not in secrets[0]:
        assert stream(secrets, [text]) == known.text(text)


def test_every_letter_by_itself():
    assert stream([CANARY], f"so {CANARY} it {CANARY[:-1]} is") == f"so *** it {CANARY[:-1]} is"  # fmt: skip


def test_a_stream_is_not_held_back_without_a_reason():
    told = []
    events = RedactedEvents(KnownSecrets([CANARY]), told.append)
    events(Streamed(TextDelta("Hello ")))
    assert [each.delta.text for each in told] == ["Hello "]


# ---------------------------------------------------------------------- seals


JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text("ab⟦⟧:secret0", max_size=12)),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text("ab⟦:secret", max_size=9), parts, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.lists(st.text('ab⟦⟧:c"', min_size=6, max_size=9), max_size=3))
def test_what_was_sealed_is_opened_exactly(value, secrets):
    seals = Seals(KnownSecrets(secrets))
    held = [value, secrets, json.dumps(secrets), {"args": json.dumps({"x": secrets})}]
    closed = seals.close(held)
    assert seals.open(closed) == held


def test_a_seal_that_a_text_holds_of_itself_opens_nothing():
    seals = Seals(KnownSecrets([CANARY]))
    seal = seals.close(CANARY)
    assert seals.open(seals.close(f"say {seal}")) == f"say {seal}"
