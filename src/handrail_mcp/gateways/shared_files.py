"""Files that several processes have: one at a time changes them, and nobody reads half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

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


def write_whole(file: Path, data: bytes, mode: int, *, is_new: bool = False) -> None:
    """Write a file so that it is there whole or as it was before, with this mode from the first byte on.

    Args:
        is_new: Never replace a file that is there.

    Raises:
        ConfigError: It cannot be written.
        FileExistsError: It is there, and was to be new.
    """
    name = ""
    try:
        with NamedTemporaryFile(
            dir=file.parent, prefix=f".{file.name}.", delete=False
        ) as written:
            # the system makes it for its owner only
            name = written.name
            written.write(data)
            written.flush()
            os.fsync(written.fileno())
        Path(name).chmod(mode)
        if is_new:
            os.link(name, file)
        else:
            Path(name).replace(file)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        if name:
            Path(name).unlink(missing_ok=True)
