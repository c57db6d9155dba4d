"""The key of the audit log: the file that it is read from, and whether a log goes on with it; see `chain`.

A program names the file in HANDRAIL_AUDIT_KEY_FILE, the command line there or in its settings. The key itself is never
on a command line or in a variable, where every process list and every child would have it.

Rule 1: who is about to write asks first whether the log goes on with this key: one record hashed otherwise, and no key
        verifies the whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.ports import AuditStore, KeyedAuditStore, RotatableAuditStore

VARIABLE = "HANDRAIL_AUDIT_KEY_FILE"
"""Names the file of the key, for every store that is opened by its name."""


LEAST_KEY_BYTES = 16
"""A new key has at least so many; a shorter one can be guessed."""


def new_key_in(file: str, old: bytes) -> bytes:
    """Return the key in a file that is to replace another one.

    Raises:
        ConfigError: As `key_in`, or it is short, or the old one.
    """
    key = key_in(file)
    if len(key) < LEAST_KEY_BYTES:
        raise ConfigError(
            f"the key in {file} has {len(key)} bytes; make one of at least {LEAST_KEY_BYTES}: openssl rand -hex 32"
        )
    if key == old:
        raise ConfigError(f"{file} holds the key that the audit log has already")
    return key


def key_in(file: str) -> bytes:
    """Return the key in a file; blanks around it and the line end behind it are an editor's.

    Raises:
        ConfigError: There is no such file, it cannot be read, or it is empty.
    """
    try:
        key = Path(file).read_bytes().strip()
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no file {file}, which should hold the key of the audit log"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{file}, the key of the audit log, cannot be read: {error.strerror}"
        ) from error
    if not key:
        raise ConfigError(f"{file} holds no key: it is empty")
    return key


def give(store: Any, file: str) -> None:
    """Let a store write its log with the key in a file; without a file, or a log, it is left as it is.

    Raises:
        ConfigError: As `key_in`, or the store's log takes no key.
    """
    if not (file and isinstance(store, AuditStore)):
        return
    if not isinstance(store, KeyedAuditStore):
        raise ConfigError(
            f"{VARIABLE} names a key, and the audit log of {store!r} takes none"
        )
    store.audit_key = key_in(file)
    if isinstance(store, RotatableAuditStore):
        store.audit_key_file = file


def check(store: object) -> None:
    """Check that the log goes on with the key that its store has. Nothing is written.

    Raises:
        ConfigError: It does not; the sentence says what would.
        StoreUnavailable: The store did not answer.
    """
    if isinstance(store, KeyedAuditStore) and (why := result_now(store.log_refuses())):
        raise ConfigError(why)
