"""One process at a time changes a file that several have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from handrail.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock on a file against other processes and threads; its folder is made if there is none.

    Raises:
        ConfigError: Nothing can be written to the folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    with lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
