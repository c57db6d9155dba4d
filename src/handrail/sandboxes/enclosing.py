"""A whole program, such as a server that somebody else wrote, enclosed by bubblewrap (Linux).

It sees this machine's programs and nothing of anybody's home: all is read-only, but for the folders that are named and
a /tmp of its own. It sees no other process, and no network unless that is allowed.

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
    hidden = [each for each in (*_HIDDEN, str(Path.home())) if Path(each).is_dir()]
    return [
        "bwrap", "--unshare-all", *(["--share-net"] if network else []), "--die-with-parent", "--new-session",
        "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
        *(word for each in dict.fromkeys(hidden) for word in ("--tmpfs", each)),
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
