"""The chain of the audit log: each record's hash covers the record and the hash before it.

The hash is SHA-256 over canonical JSON, so an edit, an insertion, a deletion or a change of order inside the log is
found, and named by record. With a key it is an HMAC, and nobody without the key can rewrite the log; a tail that was
cut off is found against a checkpoint (a record's number and hash, stored elsewhere).

Rule 1: without a key and without checkpoints the chain proves order and wholeness of what is there, no more.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable

from msgspec import Struct

from handrail.records import AuditRecord

FIRST = "0" * 64
"""The previous hash of the first record."""


class Broken(Struct, frozen=True):
    """Where a chain breaks: the number of the record, and what is wrong there."""

    seq: int
    why: str


canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Return a record's body as its hash covers it: canonical JSON, in ASCII."""

_quote = json.encoder.encode_basestring_ascii


def digest(
    seq: int,
    at: float,
    run_id: str,
    *,
    event: str,
    body: str,
    prev: str,
    key: bytes = b"",
) -> str:
    """Return the hash of a record: that of the whole record as canonical JSON.

    Args:
        body: The record's body as `canonical_json`.
    """
    names = f'"event":{_quote(event)},"prev":{_quote(prev)},"run_id":{_quote(run_id)}'
    data = f'{{"at":{at!r},"body":{body},{names},"seq":{seq}}}'.encode()
    if key:
        return hmac.new(key, data, "sha256").hexdigest()
    return hashlib.sha256(data).hexdigest()


def verify(
    records: Iterable[AuditRecord],
    *,
    key: bytes = b"",
    checkpoint: tuple[int, str] | None = None,
) -> tuple[int, Broken | None]:
    """Return how many records are in good order, and where the chain breaks, if it does.

    Args:
        checkpoint: A record's number and hash, as they were once; finds a cut tail and a log that was rewritten.
    """
    prev = FIRST
    seq = 0
    for record in records:
        if record.seq != seq + 1:
            return seq, Broken(
                record.seq,
                f"record {seq + 1} is missing: after {seq} comes {record.seq}",
            )
        if record.prev != prev:
            return seq, Broken(
                record.seq,
                f"record {record.seq} does not follow record {seq}: something was taken out",
            )
        if not _is_whole(record, key):
            return seq, Broken(
                record.seq,
                f"record {record.seq} was changed, or hashed with another key",
            )
        if checkpoint and checkpoint[0] == record.seq and checkpoint[1] != record.hash:
            return seq, Broken(
                record.seq,
                f"record {record.seq} is not the one of the checkpoint: the log was rewritten",
            )
        prev = record.hash
        seq = record.seq
    if checkpoint and seq < checkpoint[0]:
        return seq, Broken(
            seq + 1,
            f"the log ends with record {seq}; the checkpoint is record {checkpoint[0]}",
        )
    return seq, None


def refusal(last: AuditRecord, key: bytes) -> str:
    """Return why nothing may be added under a key (empty: none) to a log with this end; empty if it may."""
    if _is_whole(last, key):
        return ""
    if key and _is_whole(last, b""):
        return (
            f"the audit log is written without a key (see record {last.seq}), so nothing is added with one: a key is "
            "there from the first record on, so begin a new store, or leave the key out"
        )
    how = "another key" if key else "a key, and none is given"
    return (
        f"the last record of the audit log ({last.seq}) was hashed with {how}, or was changed, so nothing is added: "
        "name the file of its key in HANDRAIL_AUDIT_KEY_FILE, and look with `handrail audit verify`"
    )


def _is_whole(record: AuditRecord, key: bytes) -> bool:
    try:
        body = canonical_json(record.body)
        expected = digest(
            record.seq,
            record.at,
            record.run_id,
            event=record.event,
            body=body,
            prev=record.prev,
            key=key,
        )
        return hmac.compare_digest(expected, record.hash)
    except TypeError:
        # a field that should be text is none, or a hash is not ASCII
        return False
