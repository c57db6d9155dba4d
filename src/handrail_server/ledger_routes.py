"""The ledger over HTTP: the writes, how they ended, and a person's decision on one that is in doubt."""

from __future__ import annotations

import base64
import json

from handrail import admin
from handrail.errors import ConfigError, Json
from handrail.futures import result_now
from handrail.history.call_cards import describe_write
from handrail.ports import LedgerStore
from handrail.records import WriteRecord
from handrail.surroundings.clock import unix_time
from handrail_server.access import Principal
from handrail_server.answers import ApiError, not_found, page, time_text
from handrail_server.operations import ApiCall, ApiOperation

_STATES = ("claimed", "waiting", "done", "failed", "in_doubt")


def list_writes(call: ApiCall) -> Json:
    """Return writes, the newest first."""
    state = call.word("state", _STATES)
    most = call.number("limit", 100, least=1, most=1000)
    asked = most if call.by.scope is None else 100_000
    found = result_now(
        ledger_of(call).list_writes(
            state=state, run_id=call.query.get("run", ""), most=asked
        )
    )
    mine = [each for each in found if _sees(call.by, each)][:most]
    return page([_as_json(each) for each in mine])


def resolve(call: ApiCall) -> Json:
    """Record how a write ended."""
    ledger = ledger_of(call)
    scope, key = _parse_id(call.path["id"])
    write = result_now(ledger.load_write(scope, key))
    if write is None or not _sees(call.by, write):
        raise not_found("such write")
    body = call.body
    try:
        resolved = admin.resolve(
            ledger,
            scope,
            key,
            happened=body["outcome"] == "done",
            by=call.by.name,
            value=body.get("value", body.get("note") or None),
        )
    except ConfigError as error:
        now = result_now(ledger.load_write(scope, key)) or write
        raise ApiError(
            409,
            "already_settled",
            str(error),
            state=now.state,
            by=now.resolved_by or None,
        ) from error
    call.deployment.hub.publish("write_resolved", resolved.run_id, state=resolved.state)
    return _as_json(resolved)


def _as_json(write: WriteRecord) -> Json:
    described = describe_write(write, unix_time(), time_text)
    return {"id": write_id(write.scope, write.key), **described}


def write_id(scope: str, key: str) -> str:
    """Return the id of a write in addresses: its name may hold any character."""
    text = json.dumps([scope, key]).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _parse_id(id: str) -> tuple[str, str]:
    try:
        text = base64.urlsafe_b64decode(id + "=" * (-len(id) % 4))
        scope, key = json.loads(text)
    except (ValueError, TypeError) as error:
        raise not_found("such write") from error
    if not isinstance(scope, str) or not isinstance(key, str):
        raise not_found("such write")
    return scope, key


def _sees(by: Principal, write: WriteRecord) -> bool:
    return by.scope is None or write.scope == by.scope


def ledger_of(call: ApiCall) -> LedgerStore:
    """Return the store as one whose ledger people can read.

    Raises:
        ApiError: The store has no such ledger.
    """
    store = call.deployment.store
    if not isinstance(store, LedgerStore):
        raise ApiError(409, "not_kept", "this store keeps no ledger to look into")
    return store


OPERATIONS = [
    ApiOperation(
        "GET",
        "/ledger",
        list_writes,
        "see",
        "List writes, the newest first.",
        query={
            "state": "`claimed`, `waiting`, `done`, `failed` or `in_doubt`.",
            "run": "Only those of a run.",
            "limit": "How many, from 1 to 1000; 100 by default.",
        },
    ),
    ApiOperation(
        "POST",
        "/ledger/{id}",
        resolve,
        "administer",
        "Record how a write in doubt ended. Whoever does has looked.",
        body={
            "outcome": {"enum": ["done", "not_done"]},
            "note": {"type": "string", "maxLength": 10_000},
            "value": {},
        },
        required=("outcome",),
    ),
]
