"""The chain of the audit log: each record's hash covers the record and the hash before it.

The hash is SHA-256 over canonical JSON, so an edit, an insertion, a deletion or a change of order inside the log is
found, and named by record. With a key it is an HMAC, and nobody without the key can write the log anew; a tail that was
cut off is found against a checkpoint (a record's number and hash, kept elsewhere).

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
"""What stands before the first record."""


class Broken(Struct, frozen=True):
    """Where a chain breaks: the number of the record, and what is wrong there."""

    seq: int
    why: str


spelled = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Return a record's body as its hash covers it: canonical JSON, in ASCII."""

_quoted = json.encoder.encode_basestring_ascii


def digest(
    seq: int, at: float, run_id: str, event: str, body: str, prev: str, key: bytes = b""
) -> str:
    """Return the hash of a record whose body has been `spelled`: that of the whole record as canonical JSON."""
    named = (
        f'"event":{_quoted(event)},"prev":{_quoted(prev)},"run_id":{_quoted(run_id)}'
    )
    data = f'{{"at":{at!r},"body":{body},{named},"seq":{seq}}}'.encode()
    if key:
        return hmac.new(key, data, "sha256").hexdigest()
    return hashlib.sha256(data).hexdigest()


def verify(
    records: Iterable[AuditRecord],
    *,
    key: bytes = b"",
    checkpoint: tuple[int, str] | None = None,
) -> tuple[int, Broken | None]:
    """Return how many records stand in good order, and where the chain breaks, if it does.

    Args:
        checkpoint: A record's number and hash, as they were once; finds a cut tail and a log that was written anew.
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
                f"record {record.seq} is not the one of the checkpoint: the log was written anew",
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
    """Return why a log with this end is not gone on with under a key (empty: none); empty when it is."""
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
        body = spelled(record.body)
        wanted = digest(
            record.seq, record.at, record.run_id, record.event, body, record.prev, key
        )
        return hmac.compare_digest(wanted, record.hash)
    except TypeError:
        # something else stands where a text was, or no ASCII where a hash was
        return False
