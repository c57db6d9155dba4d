"""A tree of files that cannot be left: opening, reading and replacing below roots.

Nothing outside is reached, because no path is ever opened as a whole. Each component is opened relative to the
descriptor of the folder before it, and links are not followed (`openat` with `O_NOFOLLOW`), so a link that is swapped
in between a check and its use is refused like any other. What was opened is looked at once more: only a regular file is
read, and nothing of /proc, /sys or /dev. A hard link looks like any other file.

Rule 1: nothing else of Files opens anything, and here only the roots are opened by a path.
Rule 2: a name that is denied is denied in every spelling: case, Unicode form, invisible characters, a dot at the end.
Rule 3: a file is replaced whole or not at all, and a backup of what was there is for undoing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import errorcode
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from secrets import token_hex
from threading import Event

from msgspec import Struct

from handrail.errors import Code, ConfigError, NoEffect, ToolError
from handrail.parsing import names
from handrail.surroundings.clock import monotonic

try:
    import fcntl
except ImportError:  # Windows, where `name_roots` refuses
    fcntl = None  # type: ignore[assignment]  # a module or nothing

BACKUPS = ".handrail-kept"
"""The folder of a root that holds backups of replaced files, for undoing. The model neither sees nor opens it."""

MOST_COMPARED = 5_000
"""Names of a folder that are compared with one that is not in it."""

LOCK_S = 5.0
"""How long a writer waits for another one."""

LOOK = "Look at what is there with `list_files`."


class Tree(Struct, frozen=True):
    """The roots as one tree of names. Nothing else opens anything."""

    roots: Mapping[str, Path]
    denied: Sequence[str]

    def locate(self, path: str) -> tuple[Path | None, list[str]]:
        """Return the root of a path and the components below it; no root for the top of a tree of several.

        Raises:
            ToolError: It is denied, or the first component is no root.
        """
        parts = [] if path == "." else path.split("/")
        if any(
            part in ("", ".", "..") or "\0" in part for part in parts
        ) or self.denies(parts):
            raise NoEffect(
                Code.NOT_PERMITTED, f"`{path}` may not be opened here.", suggestion=LOOK
            )
        if "" in self.roots:
            return self.roots[""], parts
        if not parts:
            return None, []
        if parts[0] not in self.roots:
            raise NoEffect(
                "FILE_NOT_FOUND",
                f"There is no folder `{parts[0]}`.",
                suggestion=self._suggest_root(parts[0]),
            )
        return self.roots[parts[0]], parts[1:]

    def denies(self, parts: Sequence[str]) -> bool:
        """Whether one of these names is denied, however it is spelled."""
        return any(
            fnmatchcase(fold(part), pattern)
            for part in parts
            for pattern in self.denied
        )

    def _suggest_root(self, name: str) -> str:
        near = names.nearest(name, self.roots)
        if near:
            return f"Did you mean `{near[0]}`? {LOOK}"
        return f"The folders are {', '.join(self.roots)}."

    @contextmanager
    def folder(
        self, path: str, *, make: bool = False, wanted: str = ""
    ) -> Iterator[int]:
        """Give the descriptor of a folder, made on the way if so wanted; errors name what was `wanted` in it."""
        root, parts = self.locate(path)
        if root is None:
            raise NoEffect(
                "NOT_A_FOLDER", "This is the list of folders itself.", suggestion=LOOK
            )
        # the root itself is the programmer's word
        here = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
        reached = 0
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                below = os.open(part, _FOLDER, dir_fd=here)
                os.close(here)
                here = below
                reached = reached + 1
            _refuse_pseudo(here, path)
            yield here
        except OSError as error:
            components = (wanted or path).split("/")
            at = reached + (path != "." and len(path.split("/")) - len(parts))
            missing = error.errno == errno.ENOENT and at < len(components)
            raise _error_for(
                error,
                wanted or path,
                self._suggest(here, components, at) if missing else LOOK,
            ) from error
        finally:
            os.close(here)

    def _suggest(self, folder: int, components: Sequence[str], at: int) -> str:
        """Advise what is there instead of the component `at` of what was asked for."""
        with suppress(OSError), os.scandir(folder) as entries:
            there = [
                each.name
                for each in islice(entries, MOST_COMPARED)
                if self.shows(each.name)
            ]
            if near := [
                "/".join([*components[:at], each])
                for each in names.nearest(components[at], there)
            ]:
                return (
                    f"Did you mean {' or '.join(f'`{each}`' for each in near)}? {LOOK}"
                )
        return LOOK

    def shows(self, name: str) -> bool:
        """Whether the model may see a name."""
        return name.isprintable() and not self.denies([name])

    @contextmanager
    def place(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Give the descriptor of the folder that a file is in, and the file's name there."""
        _, parts = self.locate(path)
        above, _, name = path.rpartition("/")
        if not parts or not name:
            raise NoEffect("NOT_A_FILE", f"`{path}` is a folder.", suggestion=LOOK)
        with self.folder(above or ".", make=make, wanted=path) as here:
            yield here, name

    def contents(self, path: str, most_bytes: int) -> tuple[bytes, str]:
        """Return what a regular file holds, and its version.

        Raises:
            ToolError: It is not there, no regular file, or larger than this.
        """
        with self.place(path) as (folder, name):
            return contents(folder, name, path, most_bytes)


_FOLDER = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
# Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever; a regular file does not care.
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def fold(name: str) -> str:
    """Return one form for all spellings of a name that some file system takes for the same one.

    >>> fold(".ENV"), fold(".e\\u200dnv"), fold("．ｅｎｖ."), fold("x.PEM ")
    ('.env', '.env', '.env', 'x.pem')
    """
    visible = "".join(
        char
        for char in unicodedata.normalize("NFKC", name)
        if unicodedata.category(char) != "Cf"
    )
    return unicodedata.normalize("NFKC", visible.casefold()).rstrip(". ")


def contents(folder: int, name: str, path: str, most_bytes: int) -> tuple[bytes, str]:
    """Read one file; it is looked at before it is opened, for opening a device may do something, and after."""
    _refuse_irregular(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    file = os.open(name, _FILE, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        _refuse_irregular(status, path)
        _refuse_pseudo(file, path)
        # never by its size: a file may grow while it is read
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise NoEffect(
            "FILE_TOO_LARGE",
            f"`{path}` is larger than {most_bytes:,} bytes.",
            suggestion="Go on without it, or tell the user.",
        )
    return data, _version(data, status)


def _version(data: bytes, status: os.stat_result) -> str:
    """Name what a file holds at this moment; the same text written again at another time is another version."""
    return hashlib.sha256(
        b"%d:%d:" % (status.st_mtime_ns, status.st_ino) + data
    ).hexdigest()[:16]


def _refuse_irregular(status: os.stat_result, path: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kind = next(
        (description for test, description in _KINDS if test(status.st_mode)),
        "neither a file nor a folder",
    )
    code = Code.NOT_PERMITTED if stat.S_ISLNK(status.st_mode) else "NOT_A_FILE"
    raise NoEffect(code, f"`{path}` is {kind}.", suggestion=LOOK)


_KINDS: Sequence[tuple[Callable[[int], bool], str]] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link, and links are not followed"),
)


def _refuse_pseudo(descriptor: int, path: str) -> None:
    """Refuse what the kernel makes up, wherever it is mounted: the root may hold a whole file system."""
    if os.fstat(descriptor).st_dev in _pseudo():
        raise NoEffect(
            Code.NOT_PERMITTED, f"`{path}` may not be opened here.", suggestion=LOOK
        )


def _pseudo() -> set[int]:
    return {
        each.stat().st_dev
        for each in map(Path, ("/proc", "/sys", "/dev"))
        if each.is_mount()
    }


def _error_for(error: OSError, path: str, advice: str) -> ToolError:
    """Return the failure for an error of the system; none of these occurs after a write took effect."""
    number = error.errno or 0
    code, text = _ERRORS.get(
        number,
        (
            "NOT_USABLE",
            f"The system refuses `{{}}` ({errorcode.get(number, 'unknown')}).",
        ),
    )
    return NoEffect(code, text.format(path), suggestion=advice)


_NO_LINKS = (
    Code.NOT_PERMITTED,
    "`{}` leads through a link, and links are not followed.",
)
_ERRORS = {
    errno.ENOENT: ("FILE_NOT_FOUND", "There is no `{}`."),
    errno.ENOTDIR: (
        "NOT_A_FOLDER",
        "A part of `{}` is no folder, or a link, and links are not followed.",
    ),
    errno.ELOOP: _NO_LINKS,
    errno.EMLINK: _NO_LINKS,  # what FreeBSD says instead
    errno.EACCES: ("NOT_READABLE", "`{}` may not be used by this program."),
    errno.EPERM: ("NOT_READABLE", "`{}` may not be used by this program."),
    errno.EEXIST: (
        "FILE_EXISTS",
        "`{}` is there already; read it, and give its version to replace it.",
    ),
    errno.ENOSPC: ("DISK_FULL", "There is no room for `{}`."),
}


def replace_file(
    folder: int, name: str, data: bytes, *, keep: tuple[int, str] | None
) -> str:
    """Replace a file by these bytes, whole or not at all; return its version.

    A new file is linked to its name, which fails when there is one by now. An old one is linked to a second name, in
    the root and by the version in `keep`, before the new one takes its place, so it keeps its bytes, its times and its
    version.
    """
    own = f"{BACKUPS}-{token_hex(8)}"
    if keep is None:
        mode = 0o644
    else:
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    file = os.open(
        own,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
        dir_fd=folder,
    )
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fchmod(file, mode)
            os.fsync(file)
            version = _version(data, os.fstat(file))
        if keep is None:
            os.link(
                own,
                name,
                src_dir_fd=folder,
                dst_dir_fd=folder,
                follow_symlinks=False,
            )
        else:
            _back_up(folder, name, keep[0], backup_name(keep[1], name))
            os.replace(
                own,
                name,
                src_dir_fd=folder,
                dst_dir_fd=folder,
            )
    finally:
        with suppress(OSError):
            os.unlink(own, dir_fd=folder)
    # It has happened. A folder that cannot be synced may lose it with the machine's power, which is no reason to say
    # that it did not.
    with suppress(OSError):
        os.fsync(folder)
    return version


def backup_name(version: str, name: str) -> str:
    """Return the name of a backup, made from the version, so that it can be found again after a crash."""
    return f"{version}-{name[:50]}"


def _back_up(folder: int, name: str, root: int, backup: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(BACKUPS, 0o700, dir_fd=root)
    shelf = os.open(BACKUPS, _FOLDER, dir_fd=root)
    try:
        # There already: an attempt that died between this and the replacement saved the very same file.
        with suppress(FileExistsError):
            os.link(
                name,
                backup,
                src_dir_fd=folder,
                dst_dir_fd=shelf,
                follow_symlinks=False,
            )
    finally:
        os.close(shelf)


def restore_file(folder: int, name: str, root: int, backup: str) -> None:
    """Restore a file from the backup in its root, whole or not at all."""
    try:
        shelf = os.open(BACKUPS, _FOLDER, dir_fd=root)
        try:
            os.replace(
                backup,
                name,
                src_dir_fd=shelf,
                dst_dir_fd=folder,
            )
        finally:
            os.close(shelf)
    except FileNotFoundError as error:
        message = f"The earlier content of `{name}` is no longer kept."
        raise NoEffect(
            "FILE_NOT_FOUND", message, suggestion="Write it again, or tell the user."
        ) from error


@contextmanager
def lock_folder(folder: int, path: str, given_up: Event) -> Iterator[None]:
    """Lock a folder against other writers of this kind, so that of two with one version one is refused.

    The system releases the lock when its process dies. On a file system without locks, two writers may still meet.

    Raises:
        NoEffect: Somebody has held it for `LOCK_S`, or the call was given up.
    """
    until = monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if given_up.wait(0.005) or monotonic() > until:
                message = f"Another program is writing in the folder of `{path}`."
                advice = "Call again in a moment."
                raise NoEffect(
                    Code.UNAVAILABLE,
                    message,
                    suggestion=advice,
                    retryable=True,
                ) from error
            continue
        except OSError:
            pass
        break
    yield  # closing the folder gives the lock back


def name_roots(
    roots: Sequence[str | Path] | Mapping[str, str | Path],
) -> Mapping[str, Path]:
    """Return the roots by the names that the model uses; a single root has an empty name."""
    if sys.platform == "win32" or os.open not in os.supports_dir_fd:
        raise ConfigError(
            "Files opens relative to a folder and follows no link; this system cannot. Use WSL2 or Linux."
        )
    if isinstance(roots, str | Path) or not roots:
        raise ConfigError(
            'Files takes a list of folders, such as Files(roots=["reports"])'
        )
    by_name = roots if isinstance(roots, Mapping) else _by_own_name(roots)
    _check_roots(by_name)
    resolved = {name: Path(root).resolve() for name, root in by_name.items()}
    if len(resolved) == 1 and not isinstance(roots, Mapping):
        return {"": next(iter(resolved.values()))}
    return resolved


def _check_roots(roots: Mapping[str, str | Path]) -> None:
    for name, root in roots.items():
        if not Path(root).is_dir():
            raise ConfigError(f"{root} is no folder, so it cannot be a root of Files")
        if len(roots) > 1 and (not name or "/" in name):
            raise ConfigError(
                f"a root cannot be called {name!r}; name it: Files(roots={{'name': ...}})"
            )


def _by_own_name(roots: Sequence[str | Path]) -> Mapping[str, str | Path]:
    named: dict[str, str | Path] = {}
    for root in roots:
        name = Path(root).resolve().name
        if name in named:
            raise ConfigError(
                f"two roots are called {name!r}; name them: Files(roots={{'a': ..., 'b': ...}})"
            )
        named[name] = root
    return named
