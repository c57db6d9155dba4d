"""A whole program, such as a server that somebody else wrote, enclosed by bubblewrap (Linux).

It sees the folders where people keep what is theirs (`/home`, `/root`, `/srv`, `/mnt`, `/run`, /tmp) empty, the rest of
the machine read-only, no other process, and no network unless that is allowed. Other folders with secrets, such as one
below /opt, are not hidden.

Rule 1: where bubblewrap is not there, nothing is started: never the same program without its walls.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from handrail.errors import ConfigError

_HIDDEN = ("/root", "/home", "/run", "/tmp", "/var/tmp", "/mnt", "/media", "/srv")
"""Folders that a program sees empty: what people keep there is no business of its."""

_MOST_BYTES = 256 * 1024 * 1024
"""What a program may write in each of these: it is memory."""


def enclose(
    command: Sequence[str],
    *,
    read: Sequence[str] = (),
    write: Sequence[str] = (),
    network: bool = False,
) -> list[str]:
    """Return the command that starts a program within walls.

    Args:
        read: Files and folders that it may read, although they lie where people keep theirs.
        write: Folders that it may write.
        network: Whether it may reach other machines, and this one.

    Raises:
        ConfigError: There is no bubblewrap here, or a folder is not there.
    """
    if not sys.platform.startswith("linux") or shutil.which("bwrap") is None:
        raise ConfigError(
            "a sandbox for a server needs bubblewrap on Linux (Debian: apt install bubblewrap)"
        )
    homes = [each for each in (*_HIDDEN, str(Path.home())) if Path(each).is_dir()]
    hidden = [each for each in dict.fromkeys(homes) if each != "/"]
    names = os.path.realpath("/etc/resolv.conf")
    if network and Path(names).is_file():
        # it may be a link into /run
        read = (names, *read)
    return [
        "bwrap", "--unshare-all", *(["--share-net"] if network else []), "--die-with-parent", "--new-session",
        "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
        *(word for each in hidden for word in ("--size", str(_MOST_BYTES), "--tmpfs", each)),
        *_bind("--ro-bind", read), *_bind("--bind", write),
        "--cap-drop", "ALL", "--", *command,
    ]  # fmt: skip  # an option and its value on one line


def _bind(option: str, paths: Sequence[str]) -> Iterator[str]:
    for each in paths:
        path = os.path.realpath(Path(each).expanduser())
        if not Path(path).exists():
            raise ConfigError(
                f"the sandbox of a server names {each}, which is not there"
            )
        yield from (option, path, path)
