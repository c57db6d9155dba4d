"""The audit chain: whatever is done to it afterwards is found, within what it promises."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import handrail as hr
from handrail.audit import notice_of
from handrail.chain import FIRST, digest, spelled, verify
from handrail.records import AuditRecord
from handrail.redaction import HIDDEN, Redactor


def chain(count, key=b"", run_id="r_1"):
    records, prev = [], FIRST
    for seq in range(1, count + 1):
        body = {"n": seq, "城": "北京"}
        hash = digest(seq, seq / 7, run_id, "CallFinished", spelled(body), prev, key)
        records.append(AuditRecord(seq, seq / 7, run_id, "CallFinished", body, prev, hash))
        prev = hash
    return records


def test_a_hash_is_that_of_the_whole_record_as_canonical_json():
    [_, record] = chain(2, run_id='r_"1"')
    told = {name: value for name, value in record.as_json().items() if name != "hash"}
    canonical = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
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
    assert verify(chain(5, b"right"), key=b"right") == (5, None)
    assert verify(chain(5, b"guessed"), key=b"right")[1].seq == 1


def test_a_checkpoint_finds_a_cut_tail_and_a_log_that_was_written_anew():
    records = chain(5)
    checkpoint = (4, records[3].hash)
    assert verify(records, checkpoint=checkpoint) == (5, None)
    assert "ends with record 3" in verify(records[:3], checkpoint=checkpoint)[1].why
    other = chain(5, run_id="r_2")
    assert verify(other) == (5, None)
    assert "written anew" in verify(other, checkpoint=checkpoint)[1].why


def test_a_run_leaves_a_record_of_every_decision_and_no_secret():
    heard = []

    @hr.tool(effect="write", key="pay:{order}", approve=True)
    def pay(order: str, api_key: str) -> dict:
        """Pay for an order."""
        return {"paid": order, "with": api_key}

    word = hr.Approval(True, by="maria")
    with hr.SyncRuntime([pay], observers=[heard.append], approver=lambda asked: word) as runtime:
        assert runtime.call("pay", {"order": "7", "api_key": "sk-live-0123456789abcdef"}).ok
    notices = [notice for event in heard if (notice := notice_of(event, "r_1", Redactor()))]
    names = [notice.event for notice in notices]
    assert names == ["CallAdmitted", "ApprovalAsked", "ApprovalGiven", "AttemptStarted", "CallFinished"]
    told = json.dumps([dict(notice.body) for notice in notices])
    assert "sk-live" not in told
    assert notices[0].body["arguments"] == {"order": "7", "api_key": HIDDEN}
    assert notices[2].body["by"] == "maria"
    assert notices[4].body["ok"]
