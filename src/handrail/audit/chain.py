"""The chain of the audit log: each record's hash covers the record and the hash before it.

The hash is SHA-256 over canonical JSON, so an edit, an insertion, a deletion or a change of order inside the log is
found, and named by record. With a key it is an HMAC, and nobody without the key can rewrite the log; a tail that was
cut off is found against a checkpoint (a record's number and hash, stored elsewhere).

A key is replaced by two records: `AuditKeyReplaced`, the last under the old key, names the new one by its fingerprint,
and `AuditKeyBegun`, the first under the new key, holds the hash of the record before it as every record does. So a log
is verified with all its keys, and whoever has an old key can change nothing: the records under the new key hang on its
last one.

A log is shortened from its beginning: `AuditLogShortened` names the last record that goes, by number and hash, and is
added before any goes. So the records that are left say where they may begin, under the key, and a beginning that
somebody else has cut off is found.

Rule 1: without a key and without checkpoints the chain proves order and wholeness of what is there, no more.
Rule 2: the key changes behind an `AuditKeyReplaced` record only, to the key that it names, and never to none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from handrail.errors import Json
from handrail.records import AuditEntry, AuditRecord

FIRST = "0" * 64
"""The previous hash of the first record."""


KEY_REPLACED = "AuditKeyReplaced"
KEY_BEGUN = "AuditKeyBegun"
SHORTENED = "AuditLogShortened"
_NEXT_KEY = "next_key"
_FINGERPRINT_DIGITS = 16


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


def fingerprint(key: bytes) -> str:
    """Return what a record calls a key by: the same for the same key, and nothing that leads back to it."""
    made = hmac.new(key, b"handrail audit key", "sha256")
    return made.hexdigest()[:_FINGERPRINT_DIGITS]


def replacement(old: bytes, new: bytes, by: str) -> tuple[AuditEntry, AuditEntry]:
    """Return the entries that end the chain under one key (empty: none), and begin that under the next."""
    ending: dict[str, Json] = {"by": by, _NEXT_KEY: fingerprint(new)}
    beginning: dict[str, Json] = {"by": by, "key": fingerprint(new)}
    if old:
        ending["key"] = beginning["previous_key"] = fingerprint(old)
    return AuditEntry("", KEY_REPLACED, ending), AuditEntry("", KEY_BEGUN, beginning)


def shortening(through: int, hash: str, *, by: str, keys: Sequence[str]) -> AuditEntry:
    """Return the entry that says that the beginning of the log goes, up to a record of this number and hash.

    Args:
        keys: Fingerprints of the keys that were replaced in what goes: no record that stays was hashed with them.
    """
    body: dict[str, Json] = {"by": by, "through": through, "hash": hash}
    if keys:
        body["keys"] = list(keys)
    return AuditEntry("", SHORTENED, body)


class _Beginning:
    """Where a log begins that does not begin with record 1, until one of its records says that it may."""

    def __init__(self, first: AuditRecord) -> None:
        self.seq = first.seq
        self._prev = first.prev
        self.is_allowed = first.seq == 1
        self.ended_keys: set[str] = set()

    def consider(self, record: AuditRecord) -> str:
        """Take what an intact record says of the beginning; return what contradicts it, else empty."""
        if record.event != SHORTENED or self.seq == 1:
            return ""
        through = record.body.get("through")
        # a keeper that was killed has left some of what was to go; those records stand in the chain themselves
        if type(through) is not int or through < self.seq - 1:
            return ""
        if through == self.seq - 1 and record.body.get("hash") != self._prev:
            return (
                f"the log begins with record {self.seq}, which does not follow the one that record {record.seq} "
                f"says was the last to go ({through})"
            )
        self.is_allowed = True
        keys = record.body.get("keys", [])
        if isinstance(keys, list):
            self.ended_keys.update(map(str, keys))
        return ""


class _Keys:
    """The keys that a log is verified with, and which of them its next record must have been hashed with."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._by_fingerprint = {fingerprint(key): key for key in keys if key}
        self._current: bytes | None = None
        self._used: set[bytes] = set()

    def fit(self, record: AuditRecord) -> bool:
        """Whether a record was hashed with the key that is in force; the first record says which that is."""
        if self._current is None:
            # A log may have begun without a key. One that was written anew without a key uses none of those given.
            candidates = (*self._by_fingerprint.values(), b"")
            fitting = (key for key in candidates if _is_whole(record, key))
            self._current = next(fitting, None)
            is_whole = self._current is not None
        else:
            is_whole = _is_whole(record, self._current)
        if is_whole and self._current:
            self._used.add(self._current)
        return is_whole

    def follow(self, record: AuditRecord) -> str:
        """Go on to the key that a record names, if it names one; return why not, else empty."""
        if record.event != KEY_REPLACED:
            return ""
        named = str(record.body.get(_NEXT_KEY, ""))
        if named not in self._by_fingerprint:
            return f"record {record.seq} replaces the key, and the next one ({named}) was not given"
        self._current = self._by_fingerprint[named]
        return ""

    def unused(self) -> list[str]:
        """Return the fingerprints of keys that no record was hashed with."""
        return [
            name for name, key in self._by_fingerprint.items() if key not in self._used
        ]


def verify(
    records: Iterable[AuditRecord],
    *,
    keys: Sequence[bytes] = (),
    checkpoint: tuple[int, str] | None = None,
) -> tuple[int, Broken | None]:
    """Return how many records are in good order, and where the chain breaks, if it does.

    A log that was shortened begins where one of its own records says so.

    Args:
        keys: All keys that the log has had, in any order; none for a log without one. Each must have been used: a log
            that was cut off before its newest key is broken.
        checkpoint: A record's number and hash, as they were once; finds a cut tail and a log that was rewritten.
    """
    known = _Keys(keys)
    beginning: _Beginning | None = None
    prev = FIRST
    seq = 0
    count = 0
    for record in records:
        if beginning is None:
            beginning = _Beginning(record)
            if record.seq != 1:
                prev = record.prev
                seq = record.seq - 1
            if checkpoint and checkpoint[0] < seq:
                return 0, Broken(
                    record.seq,
                    f"the log begins with record {record.seq}, so the checkpoint ({checkpoint[0]}) proves nothing: "
                    "take a newer one",
                )
            if checkpoint and checkpoint == (seq, prev):
                checkpoint = None
        why = _break_at(record, known, seq=seq, prev=prev, checkpoint=checkpoint)
        why = why or beginning.consider(record)
        if why:
            return count, Broken(record.seq, why)
        count += 1
        if why := known.follow(record):
            return count, Broken(record.seq + 1, why)
        prev = record.hash
        seq = record.seq
    if beginning is not None and not beginning.is_allowed:
        return 0, Broken(
            1,
            f"record 1 is missing: the log begins with record {beginning.seq}, "
            "and no record says that it was shortened",
        )
    if checkpoint and seq < checkpoint[0]:
        return count, Broken(
            seq + 1,
            f"the log ends with record {seq}; the checkpoint is record {checkpoint[0]}",
        )
    ended = beginning.ended_keys if beginning else set()
    if count and (unused := [key for key in known.unused() if key not in ended]):
        return count, Broken(
            seq + 1,
            f"no record was hashed with the key {unused[0]}, so the log was cut off before it, or that is no key of it",
        )
    return count, None


def _break_at(
    record: AuditRecord,
    known: _Keys,
    *,
    seq: int,
    prev: str,
    checkpoint: tuple[int, str] | None,
) -> str:
    """Return why the chain breaks at a record, the one after `seq`; empty where it holds."""
    if record.seq != seq + 1:
        return f"record {seq + 1} is missing: after {seq} comes {record.seq}"
    if record.prev != prev:
        return (
            f"record {record.seq} does not follow record {seq}: something was taken out"
        )
    if not known.fit(record):
        return f"record {record.seq} was changed, or hashed with another key"
    if checkpoint and checkpoint[0] == record.seq and checkpoint[1] != record.hash:
        return f"record {record.seq} is not the one of the checkpoint: the log was rewritten"
    return ""


def refusal(last: AuditRecord, key: bytes) -> str:
    """Return why nothing may be added under a key (empty: none) to a log with this end; empty if it may."""
    if last.event == KEY_REPLACED:
        if key and last.body.get(_NEXT_KEY) == fingerprint(key):
            return ""
    elif _is_whole(last, key):
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
