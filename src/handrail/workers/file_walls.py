"""Which files a tool of level `process` reaches, where it declares them: `mounts` and `writable`, and its own code.

Linux holds this by Landlock, without a package, a namespace or root, in the warm worker that runs the tool. So it costs
nothing per call. Without such a declaration the tool reaches the files that our user reaches.

Rule 1: where the kernel cannot hold it, the tool is refused, never run with more.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import Path

from msgspec import Struct

from handrail.errors import Code, NoEffect
from handrail.sandboxes import landlock
from handrail.tools.tool import BaseTool
from handrail.workers.visible_code import find_visible_code

LEAST_ABI = 3
"""Of Landlock: Linux 6.2. Before, a file that is only to be read can be truncated."""

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys/devices/system/cpu",
    "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/passwd", "/etc/group",
    "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/services", "/etc/gai.conf",
    "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class FileWall(Struct, frozen=True):
    """The files and folders that a worker can read, and those that it can write too."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]

    def check(self, tool: str) -> None:
        """Raise unless this kernel can hold it.

        Raises:
            NoEffect: `NOT_ISOLATED`, with what is missing.
        """
        if landlock.abi() < LEAST_ABI:
            raise NoEffect(
                Code.NOT_ISOLATED,
                f"Tool {tool} declares the only files that it may reach, and this machine cannot hold it to them: "
                f"that needs Landlock ABI {LEAST_ABI} (Linux 6.2), and it has {landlock.abi() or 'none'}.",
                suggestion="Tell the user this, and go on without it.",
            )


def declared_files(tool: BaseTool) -> Hashable:
    """Return what decides a tool's wall: tools with the same share their workers."""
    module = getattr(tool.run, "__module__", None)
    return (
        module,
        *map(str, tool.sandbox.mounts),
        None,
        *map(str, tool.sandbox.writable),
    )


def wall_for(tool: BaseTool) -> FileWall:
    """Return the files of a tool of level `process` that declares some."""
    _, code = find_visible_code(tool)
    interpreter = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    writable = [str(Path(each).resolve()) for each in tool.sandbox.writable]
    return FileWall(
        tuple(dict.fromkeys([*_SYSTEM, *interpreter, *code])),
        tuple(dict.fromkeys([*_DEVICES, *writable])),
    )
