"""The audit log over HTTP, and whether its chain holds."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.audit import chain
from handrail.errors import Json
from handrail.futures import result_now
from handrail.ports import AuditStore, KeyedAuditStore
from handrail.records import AuditRecord
from handrail_server.answers import ApiError, page, time_text
from handrail_server.operations import ApiCall, ApiOperation

_PAGE = 1000
_MOST_LOOKED_AT = 20_000
"""Records of all tenants in which those of one are looked for, for one page."""


def list_records(call: ApiCall) -> Json:
    """Return records in order, those after a number."""
    log = log_of(call)
    most = call.number("limit", 100, least=1, most=1000)
    after = call.number("cursor", 0, least=0, most=10**17)
    run_id = call.query.get("run", "")
    if run_id and not call.by.sees(run_id):
        return page([])
    if call.query.get("newest") and not after and not run_id:
        after = max(0, newest_number(log) - most)
    found: list[AuditRecord] = []
    looked_at = 0
    while len(found) < most and looked_at < _MOST_LOOKED_AT:
        records = result_now(log.log(after=after, run_id=run_id, most=_PAGE))
        for record in records:
            after = record.seq
            looked_at += 1
            if call.by.sees(record.run_id):
                found.append(record)
                if len(found) == most:
                    break
        if len(records) < _PAGE and len(found) < most:
            return page([_as_json(each) for each in found])
    return page([_as_json(each) for each in found], str(after))


def _as_json(record: AuditRecord) -> Json:
    return {**record.as_json(), "at": time_text(record.at)}


def verify(call: ApiCall) -> Json:
    """Check the chain from its beginning."""
    log = log_of(call)
    keys = []
    if isinstance(log, KeyedAuditStore) and log.audit_key:
        keys = [log.audit_key]
    count, broken, last = chain.verify_during_retention(lambda: _read(log), keys=keys)
    return {
        "ok": broken is None,
        "records": count,
        "keyed": bool(keys),
        "broken": None if broken is None else {"seq": broken.seq, "why": broken.why},
        "last": None if last is None else {"seq": last.seq, "hash": last.hash},
    }


def _read(log: AuditStore) -> Iterator[AuditRecord]:
    after = 0
    while records := result_now(log.log(after=after, most=_PAGE)):
        yield from records
        after = records[-1].seq


def newest_number(log: AuditStore) -> int:
    """Return the number of the newest record; 0 where there is none. Numbers rise without a gap."""
    most = 1
    while result_now(log.log(after=most, most=1)):
        most *= 2
    least = most // 2
    while least < most:
        middle = (least + most) // 2
        if result_now(log.log(after=middle, most=1)):
            least = middle + 1
        else:
            most = middle
    return most if result_now(log.log(after=most - 1, most=1)) else 0


def log_of(call: ApiCall) -> AuditStore:
    """Return the store as one with an audit log.

    Raises:
        ApiError: The store has no audit log.
    """
    store = call.deployment.store
    if not isinstance(store, AuditStore):
        raise ApiError(409, "not_kept", "this store keeps no audit log")
    return store


OPERATIONS = [
    ApiOperation(
        "GET",
        "/audit",
        list_records,
        "see",
        "Read the audit log in order.",
        query={
            "run": "Only records of a run.",
            "cursor": "`next` of the page before.",
            "newest": "1 for the newest page, where there is no cursor.",
            "limit": "How many, from 1 to 1000; 100 by default.",
        },
    ),
    ApiOperation("GET", "/audit/verify", verify, "see", "Check the chain of the log."),
]
