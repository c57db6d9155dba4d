"""The audit chain: whatever is done to it afterwards is found, within what it promises."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from concurrent.futures import Future

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

import handrail as hr
from handrail.audit.chain import (
    FIRST,
    GROUP,
    canonical_json,
    count_in,
    digest,
    replacement,
    verify,
)
from handrail.audit.observer import AuditObserver
from handrail.audit.trail import MOST_TEXT_CHARS, AuditBuilder
from handrail.core.admission import Admitted
from handrail.core.policy import Decision, Verdict
from handrail.core.redaction import HIDDEN, Redactor
from handrail.engine.active_run import wait_until_audited
from handrail.errors import Code, StoreUnavailable
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttemptFailed,
    AttemptStarted,
    CallAdmitted,
    CallFinished,
    FinishedLate,
    LateResult,
    ModelAnswered,
    RunEnded,
    RunStarted,
)
from handrail.futures import result_now
from handrail.messages import Turn
from handrail.records import AuditRecord
from handrail.stores.sqlite import SqliteStore
from handrail.tools.keys import canonical
from tests.support.drivers import BOUND_S, KINDS, Driver, until


def chain(count, key=b"", run_id="r_1"):
    records, prev = [], FIRST
    for seq in range(1, count + 1):
        body = {"n": seq, "城": "北京"}
        hash = digest(
            seq,
            seq / 7,
            run_id,
            event="CallFinished",
            body=canonical_json(body),
            prev=prev,
            key=key,
        )
        records.append(
            AuditRecord(seq, seq / 7, run_id, "CallFinished", body, prev, hash)
        )
        prev = hash
    return records


def test_a_hash_is_that_of_the_whole_record_as_canonical_json():
    [_, record] = chain(2, run_id='r_"1"')
    told = {name: value for name, value in record.as_json().items() if name != "hash"}
    canonical = json.dumps(
        told, sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    assert record.hash == hashlib.sha256(canonical.encode()).hexdigest()


def through_json(record):
    return AuditRecord(**json.loads(json.dumps(record.as_json(), ensure_ascii=False)))


@given(st.integers(0, 12))
def test_a_chain_that_nobody_touched_is_in_good_order_also_after_an_export(count):
    assert verify(map(through_json, chain(count))) == (count, None)


CHANGES = {
    "edit": lambda records, n: [*records[:n], replace(records[n], body={"n": -1}), *records[n + 1 :]],
    "time": lambda records, n: [*records[:n], replace(records[n], at=0.5), *records[n + 1 :]],
    "deletion": lambda records, n: [*records[:n], *records[n + 1 :]],
    "renumbered deletion": lambda records, n: [
        *records[:n], *(replace(each, seq=each.seq - 1) for each in records[n + 1 :])
    ],
    "order": lambda records, n: [*records[:n], records[n + 1], records[n], *records[n + 2 :]],
    "insertion": lambda records, n: [*records[:n], records[n], *records[n:]],
    "wrong hash": lambda records, n: [*records[:n], replace(records[n], hash="0" * 64), *records[n + 1 :]],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_change_inside_the_log_is_found_and_named(change, place):
    good, broken = verify(CHANGES[change](chain(10), place))
    assert broken is not None
    assert good in (place, place + 1)
    assert str(broken.seq) in broken.why


def test_with_a_key_a_log_that_was_written_anew_is_found():
    assert verify(chain(5, b"right"), keys=[b"right"]) == (5, None)
    assert verify(chain(5, b"guessed"), keys=[b"right"])[1].seq == 1


def test_a_log_whose_key_was_replaced_cannot_be_rewritten_by_who_has_the_old_key():
    old, new, evil = b"old key", b"new key", b"key of a thief"
    log = replaced(chain(3, old), old, new)
    log = added(log, new, "RunEnded")
    assert verify(log, keys=[old, new]) == (6, None)
    # the thief writes on under the old key, edits what is below, names a key of their own, or cuts
    assert verify(added(log, old, "RunEnded"), keys=[old, new])[1].seq == 7
    edited = list(chain(3, old))
    edited[1] = rehashed(replace(edited[1], event="Edited"), old)
    edited[2] = rehashed(replace(edited[2], prev=edited[1].hash), old)
    forged = replaced(edited, old, new)[:4] + log[4:]
    assert verify(forged, keys=[old, new])[1] is not None
    assert verify(replaced(chain(3, old), old, evil), keys=[old, new])[1].seq == 5
    for kept in (1, 3, 4):
        assert verify(log[:kept], keys=[old, new])[1] is not None
    assert verify(chain(6), keys=[old, new])[1] is not None


def added(records, key, event, body=None):
    """The log with one record more."""
    last = records[-1]
    made = AuditRecord(last.seq + 1, last.at, "", event, body or {}, last.hash, "")
    return [*records, rehashed(made, key)]


def rehashed(record, key):
    body = canonical_json(record.body)
    hash = digest(
        record.seq,
        record.at,
        record.run_id,
        event=record.event,
        body=body,
        prev=record.prev,
        key=key,
    )
    return replace(record, hash=hash)


def replaced(records, old, new):
    ending, beginning = replacement(old, new, "anna")
    records = added(records, old, ending.event, ending.body)
    return added(records, new, beginning.event, beginning.body)


def test_a_checkpoint_finds_a_cut_tail_and_a_log_that_was_written_anew():
    records = chain(5)
    checkpoint = (4, records[3].hash)
    assert verify(records, checkpoint=checkpoint) == (5, None)
    assert "ends with record 3" in verify(records[:3], checkpoint=checkpoint)[1].why
    other = chain(5, run_id="r_2")
    assert verify(other) == (5, None)
    assert "rewritten" in verify(other, checkpoint=checkpoint)[1].why


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": None},
        {"event": b"x"},
        {"hash": "\u00e9"},
        {"hash": None},
        {"at": "x"},
    ],
)
def test_what_is_no_text_where_one_was_is_a_change_too(change):
    [record] = chain(1)
    assert verify([replace(record, **change)])[1].seq == 1


def test_a_log_of_an_earlier_version_that_told_a_read_in_several_records_still_verifies():
    admitted = {
        "call": "c1", "tool": "look_up", "arguments": {"city": "北京", "at": 1e-7}, "arguments_sha256": "00",
        "repairs": [], "key": "", "risk": "low", "why": "within the policy", "pin": "ab12", "isolation": "none",
    }  # fmt: skip
    hashes = (  # of these two, made by the version of 20 November 2026
        "3653ebf38548e5f9435b773dbf042b8c667223ad3b18eea053e04b3d9801302d",
        "f983b7432c46223de7b7149b2ef72a7b343627731fd142f677a1b868ad836a8d",
    )
    started = {"call": "c1", "tool": "look_up", "attempt": 1}
    records = [
        AuditRecord(
            1, 1763724000.25, "r_é", "CallAdmitted", admitted, FIRST, hashes[0]
        ),
        AuditRecord(
            2, 1763724001.0, "r_é", "AttemptStarted", started, hashes[0], hashes[1]
        ),
    ]
    assert verify(records) == (2, None)


def recorded(events, principal=""):
    """Return what is recorded of these events of one run."""
    account = AuditBuilder("r_1", Redactor(), principal)
    return [notice for event in events for notice in account.entries(event)]


CALL = hr.ToolCall("call_1", "look_up", '{"order": "7"}')
ADMITTED = CallAdmitted(
    CALL, {"order": "7"}, ["comment"], "", "low", "within the policy", "ab12", "none"
)
FINISHED = CallFinished(
    CALL, hr.ToolResult("call_1", "look_up", text="shipped", attempts=1), 0.25
)


def test_a_read_leaves_one_record_that_says_what_was_asked_for_why_it_was_allowed_and_how_it_ended():
    [notice] = recorded([ADMITTED, AttemptStarted(CALL, 1), FINISHED], "ana")
    assert (notice.run_id, notice.event) == ("r_1", "CallFinished")
    assert notice.body == {
        "call": "call_1", "tool": "look_up", "principal": "ana", "arguments": {"order": "7"},
        "arguments_sha256": hashlib.sha256(b'{"order":"7"}').hexdigest(), "repairs": ["comment"], "key": "",
        "risk": "low", "why": "within the policy", "pin": "ab12", "isolation": "none",
        "ok": True, "code": "", "attempts": 1, "replayed": False, "seconds": 0.25,
        "result_bytes": 7, "result": hashlib.sha256(b"shipped").hexdigest(),
        "labels": {"integrity": "trusted", "confidentiality": "public"},
    }  # fmt: skip


@pytest.mark.parametrize("more", [{"key": "r_1/1/0"}, {"risk": "medium"}, {"risk": ""}])
def test_of_a_write_or_at_a_risk_the_admission_is_recorded_before_the_start_and_the_end_behind_it(
    more,
):
    account = AuditBuilder("r_1", Redactor())
    assert [each.event for each in account.entries(replace(ADMITTED, **more))] == [
        "CallAdmitted"
    ]
    assert account.entries(AttemptStarted(CALL, 1)) == []
    [end] = account.entries(FINISHED)
    assert (end.event, "arguments" in end.body) == ("CallFinished", False)


@pytest.mark.parametrize(("between", "names"), [
    ([AttemptStarted(CALL, 1), AttemptFailed(CALL, 1, "reset", 0.2), AttemptStarted(CALL, 2)],
     ["AttemptFailed", "AttemptStarted"]),
    ([ApprovalAsked(CALL, {"order": "7"}, "low", "a rule"), ApprovalGiven(CALL, None)],
     ["ApprovalAsked", "ApprovalPending"]),
    ([FinishedLate(CALL)], ["FinishedLate"]),
])  # fmt: skip
def test_what_happens_between_a_read_s_admission_and_its_end_is_recorded_between_them(
    between, names
):
    notices = recorded([ADMITTED, *between, FINISHED])
    assert [each.event for each in notices] == ["CallAdmitted", *names, "CallFinished"]


def test_two_calls_of_one_id_leave_a_record_each():
    other = hr.ToolCall("call_1", "look_up", '{"order": "8"}')
    events = [
        ADMITTED,
        replace(ADMITTED, call=other, arguments={"order": "8"}),
        replace(FINISHED, call=other),
        FINISHED,
    ]
    assert [each.body["arguments"]["order"] for each in recorded(events)] == ["8", "7"]


def test_a_read_that_has_no_end_when_its_run_has_is_recorded_before_that():
    notices = recorded(
        [
            ADMITTED,
            AttemptStarted(CALL, 1),
            RunEnded("r_1", "failed", "an error in the set-up"),
        ]
    )
    assert [each.event for each in notices] == ["CallAdmitted", "RunEnded"]


def test_what_the_tool_does_to_its_arguments_does_not_change_the_record():
    arguments = {"orders": ["7"]}
    account = AuditBuilder("r_1", Redactor())
    account.entries(replace(ADMITTED, arguments=arguments))
    arguments["orders"].append("8")
    [notice] = account.entries(FINISHED)
    assert notice.body["arguments"] == {"orders": ["7"]}


def test_a_run_leaves_a_record_of_every_decision_and_no_secret():
    heard = []

    @hr.tool(effect="write", key="pay:{order}", approve=True)
    def pay(order: str, api_key: str) -> dict:
        """Pay for an order."""
        return {"paid": order, "with": api_key}

    word = hr.Approval(True, by="maria")
    with hr.SyncRuntime(
        [pay], observers=[heard.append], approver=lambda asked: word
    ) as runtime:
        assert runtime.call(
            "pay", {"order": "7", "api_key": "sk-live-0123456789abcdef"}
        ).ok
    notices = recorded(heard)
    names = [notice.event for notice in notices]
    assert names == [
        "CallAdmitted",
        "ApprovalAsked",
        "ApprovalGiven",
        "AttemptStarted",
        "CallFinished",
    ]
    told = json.dumps([dict(notice.body) for notice in notices])
    assert "sk-live" not in told
    assert notices[0].body["arguments"] == {"order": "7", "api_key": HIDDEN}
    assert notices[2].body["by"] == "maria"
    assert notices[4].body["ok"]


def test_no_secret_is_in_the_log_as_the_key_of_a_write_or_as_a_name_that_a_model_made_up():
    heard, key = [], "sk-live-0123456789abcdef"

    @hr.tool(effect="write", key="pay:{order}:{password}:{note}")
    def pay(order: str, password: str, note: str) -> str:
        """Pay for an order."""
        return order

    with hr.SyncRuntime([pay], observers=[heard.append]) as runtime:
        assert runtime.call(
            "pay", {"order": "7", "password": "correct horse", "note": f"with {key}"}
        ).ok
        assert not runtime.call(key, {}).ok
    notices = recorded(heard)
    assert notices[0].body["key"] == f"pay:7:{HIDDEN}:with {HIDDEN}"
    assert notices[-1].body["tool"] == HIDDEN
    told = json.dumps([dict(notice.body) for notice in notices])
    assert "horse" not in told
    assert key not in told


def test_of_long_arguments_the_beginning_is_recorded_with_length_and_digest_of_the_rest():
    long, key = "word " * 20_000, "sk-live-0123456789abcdef"
    [notice] = recorded(
        [
            replace(ADMITTED, arguments={"order": "7", "text": long, "more": long}),
            FINISHED,
        ]
    )
    body = notice.body
    assert body["arguments"]["order"] == "7"
    assert body["arguments"]["text"].startswith("word word ")
    assert len(json.dumps(body)) < 40_000
    assert 160_000 < body["rest_chars"] < 200_000
    [other] = recorded(
        [
            replace(
                ADMITTED, arguments={"order": "7", "text": long, "more": f"{long}!"}
            ),
            FINISHED,
        ]
    )
    assert other.body["rest_sha256"] != body["rest_sha256"]
    # the cut goes through the key
    for before in range(MOST_TEXT_CHARS - 60, MOST_TEXT_CHARS + 20, 7):
        [notice] = recorded(
            [
                replace(
                    ADMITTED,
                    arguments={"text": f"{'a ' * 10_000}"[:before] + " " + key + long},
                ),
                FINISHED,
            ]
        )
        assert "sk-live" not in json.dumps(notice.body)


def test_no_more_of_a_record_is_looked_at_however_long_its_texts_are():
    looked_at = []

    class Counting(Redactor):
        def text(self, text):
            looked_at.append(len(text))
            return super().text(text)

    hostile, call = "eyJ-" * 250_000, replace(CALL, id="eyJ-" * 250_000)
    account = AuditBuilder("r_1", Counting())
    arguments = {f"text{n}": hostile for n in range(20)}
    account.entries(
        replace(
            ADMITTED, call=call, arguments=arguments, key=f"k:{hostile}", why=hostile
        )
    )
    account.entries(AttemptFailed(call, 1, hostile, None))
    account.entries(FinishedLate(call, hostile, error=hostile))
    assert sum(looked_at) < 10 * (MOST_TEXT_CHARS + 1024) + 20 * 1024 + 1000


# -- a write of high risk waits for its record -------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def deployed(request, tmp_path):
    """A runtime of either kind, with tools of every risk, on a log that may be made to refuse."""
    opened = []

    def make(tools):
        store = SqliteStore(tmp_path / "log.db")
        opened.append(
            (
                Driver(
                    request.param, tools, {"store": store, "approver": lambda _: True}
                ),
                store,
            )
        )
        return opened[-1]

    yield make
    for driver, store in opened:
        driver.close()
        store.close()


def test_a_write_of_high_risk_starts_only_once_the_log_has_its_record(
    deployed, tmp_path
):
    seen = []

    @hr.tool(effect="destructive")
    def wipe() -> str:
        """Wipe."""
        with SqliteStore(tmp_path / "log.db") as other:
            seen.extend(record.event for record in result_now(other.log()))
        return "wiped"

    driver, _ = deployed([wipe])
    assert driver.call("wipe", run="r").ok
    assert seen[:3] == ["CallAdmitted", "ApprovalAsked", "ApprovalGiven"]


def test_a_log_that_takes_no_record_refuses_the_start_of_a_write_of_high_risk_and_of_no_other(
    deployed,
):
    done = []

    def wipe() -> str:
        """Do it."""
        done.append("wiped")
        return "wiped"

    tools = [
        hr.FunctionTool(wipe, name=risk, effect="write", risk=risk)
        for risk in ("medium", "high")
    ]
    driver, store = deployed(tools)
    assert driver.call("medium", run="r").ok
    until(lambda: result_now(store.log()))
    # from now on the log refuses, and claims are as before
    store.audit_key = b"another"
    assert driver.call("medium", run="s").ok
    refused = driver.call("high", run="t")
    assert (refused.failure.code, refused.failure.retryable, done) == (
        Code.UNAVAILABLE,
        True,
        ["wiped"] * 2,
    )
    assert "audit log" in refused.failure.message
    store.audit_key = b""
    assert driver.call("high", run="t").ok
    assert len(done) == 3


def test_what_a_failing_log_did_not_take_is_offered_once_more_at_the_latest_when_its_run_ends():
    class Log:
        full, told = True, []

        def append_audit(self, notices):
            if self.full:
                raise StoreUnavailable("its disk is full")
            self.told.extend(each.event for each in notices)

        def log(self, **_):
            return []

    log = Log()
    trail = AuditObserver(log, "r", Redactor())
    for event in (RunStarted("r", "m"), RunStarted("r", "n")):
        with pytest.raises(StoreUnavailable):
            trail(event)
    assert isinstance(asyncio.run(wait_until_audited(trail, 1.0)), StoreUnavailable)
    log.full = False
    assert asyncio.run(wait_until_audited(trail, 1.0)) is None
    assert log.told == ["RunStarted", "RunStarted"]
    log.full = True
    with pytest.raises(StoreUnavailable):
        trail(RunStarted("r", "m"))
    with pytest.raises(StoreUnavailable):
        trail(RunEnded("r", "done", ""))
    log.full = False
    trail(RunEnded("r", "done", ""))
    assert log.told[2:] == ["RunStarted", "RunEnded", "RunEnded"]


def test_what_one_answer_for_many_says_too_early_is_offered_once_more():
    told = []

    class Log:
        answer = Future()

        def append_audit(self, notices):
            told.append([each.event for each in notices])
            if len(told) == 2:  # in the writer's thread, before this answer is returned
                self.answer.set_exception(StoreUnavailable("its disk is full"))
            return self.answer if len(told) < 3 else None

        def log(self, **_):
            return []

    trail = AuditObserver(Log(), "r", Redactor())
    trail(RunStarted("r", "m"))
    trail(RunStarted("r", "n"))
    trail(RunEnded("r", "done", ""))
    assert told[2:] == [["RunStarted", "RunStarted"], ["RunEnded"]]


class LaterLog:
    """A log whose answers the test gives."""

    def __init__(self):
        self.told, self.answers = [], []

    def append_audit(self, notices):
        self.told.append([each.event for each in notices])
        self.answers.append(Future())
        return self.answers[-1]

    def log(self, **_):
        return []


def test_a_write_of_high_risk_waits_for_its_record_though_the_log_has_taken_newer_ones():
    async def offered(log, count):
        while len(log.answers) < count:
            await asyncio.sleep(0)

    async def wait():
        log = LaterLog()
        trail = AuditObserver(log, "r", Redactor())
        trail(RunStarted("r", "m"))  # as the admission, which is sent before the claim
        trail(AttemptStarted(CALL, 1))  # of another call of the turn
        waiting = asyncio.ensure_future(wait_until_audited(trail, BOUND_S))
        await asyncio.sleep(0)
        log.answers[0].set_exception(StoreUnavailable("its disk is full"))
        log.answers[1].set_result(None)
        await asyncio.wait_for(offered(log, 3), BOUND_S)
        assert (waiting.done(), log.told[2:]) == (False, [["RunStarted"]])
        log.answers[2].set_exception(StoreUnavailable("its disk is full"))
        assert isinstance(await waiting, StoreUnavailable)
        waiting = asyncio.ensure_future(wait_until_audited(trail, BOUND_S))
        await asyncio.wait_for(offered(log, 4), BOUND_S)
        log.answers[3].set_result(None)
        assert await waiting is None

    asyncio.run(wait())


def test_records_whose_answer_nobody_waited_for_to_its_end_are_offered_once_more():
    log = LaterLog()
    trail = AuditObserver(log, "r", Redactor())
    trail(RunStarted("r", "m"))
    assert isinstance(asyncio.run(wait_until_audited(trail, 0.001)), TimeoutError)
    trail(RunEnded("r", "done", ""))
    assert log.told == [["RunStarted"], ["RunStarted"], ["RunEnded"]]


def test_records_of_harmless_reads_alone_may_wait():
    taken = []

    class Log:
        takes_groups = True

        def append_audit(self, notices):
            taken.extend((each.count, each.may_wait) for each in notices)

        def log(self, **_):
            return []

    trail = AuditObserver(Log(), "r", Redactor())

    def look_up(order: str) -> str:
        """Look up an order."""
        return order

    read = hr.FunctionTool(look_up, effect="read")
    write = hr.FunctionTool(look_up, name="refund", effect="write")
    result = FINISHED.result
    other = replace(CALL, id="call_2")

    def admitted(call, tool, **more):
        verdict = Verdict(Decision.ALLOW, "low", "within the policy")
        return Admitted(
            call, tool, tool.call_traits, {"order": "7"}, {}, verdict, **more
        )

    trail.note_admission(admitted(CALL, read), None)
    trail.note_admission(admitted(other, read), None)
    trail.note_end(CALL, result, 0.1, False)
    trail.note_end(other, result, 0.1, False)
    trail.send()
    trail.note_admission(admitted(CALL, read), None)
    trail.note_admission(admitted(other, write, key="k"), None)
    trail.send()
    trail.note_end(CALL, result, 0.1, False)
    trail.note_end(other, result, 0.1, False)
    trail.send()
    trail.note_answer(1, Turn("Done."))
    trail.send()
    assert taken == [(2, True), (1, False), (2, False), (1, False)]


_told = st.sampled_from([
    "Paris", "北京", "", "a\nb", 'say "no"', "sk-live-0123456789abcdef", "password=", "hunter22", "api_key: ",
    "-----BEGIN PRIVATE KEY-----", "eyJhbGciOiJI.eyJzdWIiOiIx.x", "Bearer ", "abcdefgh12345678",
    "ｐａｓｓｗｏｒｄ: x1234567", "https://u:p4ssw0rd@example.org", "{", "[", "'",
    "max_tokens='", "password=hunter22", 'to\u212aen="hunter22"', "\u0130", "token=a\uff071bcdefgh", "\u200b",
])  # fmt: skip
_calls_told = st.lists(
    st.tuples(_told, _told, _told, st.booleans()), min_size=1, max_size=4
)


@given(_calls_told)
@example([('to\u212aen="hunter22"', "", "", False), ("\u0130", "", "", False)])
@example([("", "token=a\uff071bcdefgh", "", True), ("\u200b", "", "", True)])
def test_records_that_are_written_later_are_those_that_are_written_at_once(told):
    """One look at all texts of a turn finds what a look at each of them finds."""
    entries = []

    class Log:
        takes_groups = takes_unwritten = True

        def append_audit(self, notices):
            entries.extend(notices)

        def log(self, **_):
            return []

    def look_up(order: str, password: str = "") -> str:
        """Look up an order."""
        return order

    tools = [hr.FunctionTool(look_up, effect=effect) for effect in ("read", "write")]
    trail = AuditObserver(Log(), "r", Redactor(), "ann %d")
    calls = [hr.ToolCall(id, "look_up", "{}") for id, *_ in told]
    why = "within 100 %s of the policy"
    listed = list(calls)
    trail.note_answer(1, Turn(calls=listed, finish="calls"))
    listed.clear()  # a model of yours may use its list again
    account = AuditBuilder("r", Redactor(), "ann %d")
    answered = ModelAnswered(1, Turn(calls=calls, finish="calls"))
    expected = account.entries(answered)
    for call, (_, first, second, writes) in zip(calls, told, strict=True):
        arguments = {"order": first, "text": second}
        admitted = Admitted(
            call, tools[writes], tools[writes].call_traits, arguments, {},
            Verdict(Decision.ALLOW, "low", why), key="k" if writes else "",
        )  # fmt: skip
        trail.note_admission(admitted, None)
        event = CallAdmitted(
            call, arguments, (), admitted.key, "low", why, tools[writes].pin, "none"
        )  # fmt: skip
        expected += account.entries(event)
        arguments["order"] = "changed since"
        result = hr.ToolResult(call.id, "look_up", second, text=second, attempts=1)
        trail.note_end(call, result, 0.25, False)
        expected += account.entries(CallFinished(call, result, 0.25))
    trail.send()
    [entry] = entries
    text = entry.written().text
    records = json.loads(text)["records"]
    assert records == [[each.event, each.body] for each in expected]
    assert text == canonical_json({"records": records})


def test_an_answer_that_cannot_be_recorded_costs_no_other_run_its_records(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    trails = [AuditObserver(store, f"r_{n}", Redactor()) for n in range(3)]
    for number, trail in enumerate(trails):
        id = number if number == 1 else str(number)  # an adapter's own kind of id
        trail.note_answer(1, Turn(calls=[hr.ToolCall(id, "look_up")]))
        trail.send()
    for trail in trails:
        result_now(trail.flush())
    assert [each.run_id for each in result_now(store.log())] == ["r_0", "r_2"]
    store.close()


@given(st.floats(0, 1e6) | st.integers(0, 10**7).map(lambda n: n / 1e6))
def test_seconds_are_written_as_python_writes_them_to_the_microsecond(seconds):
    account = AuditBuilder("r", Redactor())
    account.entries(ADMITTED)
    [end] = account.records(replace(FINISHED, seconds=seconds))
    assert f'"seconds":{round(seconds, 6)!r}' in end[1]


@pytest.mark.parametrize("text", ["", "42", "a" * 70_000, "北京", "\ud800"])
@pytest.mark.parametrize("key", [b"k", b"k" * 32, b"k" * 64, b"k" * 65])
def test_a_result_is_digested_as_it_is_with_the_key_of_the_store(key, text):
    """Nobody without the key can find out a short result by trying; with it, any text can be shown to be the one."""
    builder = AuditBuilder("r_1", Redactor(), digest_key=key)
    builder.entries(ADMITTED)
    result = hr.ToolResult("call_1", "look_up", text=text, attempts=1)
    [end] = builder.entries(CallFinished(CALL, result, 0.25))
    data = text.encode("utf-8", "surrogatepass")
    expected = hmac.digest(key, data, "sha256").hex()
    assert end.body["result"] == f"hmac-sha256:{expected}"
    assert end.body["result_bytes"] == len(data)


def test_a_late_result_is_digested_with_the_key_too():
    key = b"k" * 32
    builder = AuditBuilder("r_1", Redactor(), digest_key=key)
    late = LateResult(CALL, "look_up", "r_1/1/0", 1, "done", "shipped")
    [entry] = builder.entries(late)
    expected = hmac.digest(key, b"shipped", "sha256").hex()
    assert entry.body["result"] == f"hmac-sha256:{expected}"


@pytest.mark.parametrize("arguments", [
    {"city": "北京 3", "days": 2, "now": True, "unit": None},
    {"\u0130": "I\u0307", "b": "\x7f", "a": "\u2028"},
    {"a": "\ud83d\ude00"}, {"a": "\ud800"}, {"a": "ｐａｓｓｗｏｒｄ: hunter22"}, {"密码": "hunter22"},
    {"text": "密码：hunter22"}, {"text": "我的 token=abc123def456"},
])  # fmt: skip
def test_plain_arguments_are_recorded_the_quick_way_as_the_careful_way_does(arguments):
    builder = AuditBuilder("r_1", Redactor())
    builder.entries(replace(ADMITTED, arguments=arguments))
    [quick] = builder.entries(FINISHED)
    careful = AuditBuilder("r_1", Redactor())
    # what is no plain value makes all of them go the careful way
    careful.entries(replace(ADMITTED, arguments={**arguments, "~": []}))
    [end] = careful.entries(FINISHED)
    shown = dict(end.body["arguments"])
    del shown["~"]
    assert quick.body["arguments"] == shown
    digest = hashlib.sha256(canonical(shown).encode("utf-8", "surrogatepass"))
    assert quick.body["arguments_sha256"] == digest.hexdigest()


def test_a_row_takes_as_many_numbers_as_it_holds_records_whatever_their_text():
    records = [["ToolStarted", {"text": "\ud800"}], ["ToolEnded", {}]]
    assert count_in(GROUP, canonical_json({"records": records})) == 2
    assert count_in(GROUP, "{") == 1
    assert count_in("ToolEnded", "{}") == 1
