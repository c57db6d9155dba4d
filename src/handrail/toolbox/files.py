"""Files: read, list and search within folders that the programmer names, and write there with somebody's agreement.

    runtime = hr.Runtime(Files(roots=["/srv/handbook"]))                    # read_file, list_files, search_files
    runtime = hr.Runtime([*Files(roots=["notes", "reports"], writing=True), other_tool])     # and write_file

One root is the tree that the model sees; several are folders of it, each by its own name.

Nothing outside is reached, because no path is ever opened as a whole. Each component is opened relative to the
descriptor of the folder before it, and links are not followed (`openat` with `O_NOFOLLOW`), so a link that is swapped
in between a check and its use is refused like any other. What was opened is looked at once more: only a regular file is
read, and nothing of /proc, /sys or /dev. A hard link is a file like any other and cannot be told from one.

Rule 1: `_Tree` alone opens anything, and only relative to a descriptor.
Rule 2: a name that is denied is denied in every spelling: case, Unicode form, invisible characters, a dot at the end.
Rule 3: a file is replaced only by whoever has seen what is there (`version`), whole or not at all, and what was there
        is kept for undoing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import unicodedata
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import errorcode
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from secrets import token_hex
from threading import Event
from typing import Annotated, Any, NoReturn, TypedDict

import jsonschema_rs
from pydantic import Field

from handrail import names
from handrail.context import Context
from handrail.effects import Found, NotFound, Unknown
from handrail.errors import Code, ConfigError, Json, NoEffect, ToolError
from handrail.guards import RelativePath
from handrail.tools import FunctionTool
from handrail.toolset import Toolset

DENIED = (".env", ".env.*", ".git", ".ssh", ".netrc", ".npmrc", ".pypirc", ".aws", ".kube", "*.pem", "*.key", "id_*")
"""Names that are neither shown nor opened: secrets mostly, and `.git`, where a written file is a program that runs."""

KEPT = ".handrail-kept"
"""The folder of a root in which what was replaced is kept for undoing. The model neither sees nor opens it."""

MOST_BYTES = 16 * 1024 * 1024
"""Of one file that are read or written."""

MOST_ENTRIES = 500
MOST_MATCHES = 100
MOST_LOOKED_AT = 20_000
"""Files that one search or listing looks at."""
MOST_SEARCHED_BYTES = 256 * 1024 * 1024
MOST_DEPTH = 32
LINE_SHOWN = 300
"""Characters of a line that a search shows, and 10,000 that it looks at."""
LINE_SEARCHED = 10_000

_LOOK = "Look at what is there with `list_files`."


# ---------------------------------------------------------------------- what the model reads


class Text(TypedDict):
    """Lines of a file. `version` names what the file holds now; `write_file` wants it."""

    path: str
    encoding: str
    version: str
    first_line: int
    last_line: int
    lines: int
    has_more: bool
    text: str


class Entry(TypedDict):
    """Something in a folder: `kind` is file, folder, link (never followed) or other; `bytes` is its size."""

    path: str
    kind: str
    bytes: int


class Listing(TypedDict):
    """What a folder holds, by name."""

    entries: list[Entry]
    has_more: bool


class Match(TypedDict):
    """A line in which the text was found."""

    path: str
    line: int
    text: str


class Matches(TypedDict):
    """What a search found; `unread` are files that are no text, too large, or could not be opened."""

    matches: list[Match]
    files_searched: int
    unread: int
    has_more: bool


class Written(TypedDict):
    """What was written. `kept` names what was there before, for undoing; empty when the file is new."""

    path: str
    version: str
    encoding: str
    bytes: int
    kept: str


# ---------------------------------------------------------------------- text


def decoded(data: bytes) -> tuple[str, str]:
    """Return the text of a file and the encoding it was read in.

    A byte order mark decides; then UTF-8, which other encodings hardly ever pass for; then GB18030, where most of what
    is not ASCII is common Chinese, for it takes nearly any bytes. Nothing else is guessed.

    >>> decoded("天气".encode("gb18030"))
    ('天气', 'gb18030')

    Raises:
        ValueError: It is no text, or in another encoding; the message says which.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise ValueError(f"begins like {encoding} and goes on as something else") from error
    if b"\0" in data or len(data.translate(None, _CONTROLS)) < 0.95 * len(data):
        raise ValueError("is binary")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8"), "utf-8"
    with suppress(UnicodeDecodeError):
        text = data.decode("gb18030")
        foreign = [char for char in text if not char.isascii()]
        if sum(map(_is_common_chinese, foreign)) >= 0.8 * len(foreign):
            return text, "gb18030"
    raise ValueError("is in an encoding that is none of UTF-8, UTF-16 and GB18030")


_MARKS = {BOM_UTF8: "utf-8-sig", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}
_CONTROLS = bytes({*range(32)} - set(b"\t\n\r\f\x1b"))


def _is_common_chinese(char: str) -> bool:
    """Whether it is in GB 2312: 6,763 ideographs and the punctuation, of the 27,000 that GB18030 can write."""
    try:
        return len(char.encode("gb2312")) == 2
    except UnicodeEncodeError:
        return False


def _encoded(text: str, encoding: str) -> tuple[bytes, str]:
    """Return text in the encoding of the file it replaces, in UTF-8 where that cannot write it."""
    with suppress(UnicodeEncodeError):
        return text.encode(encoding), encoding
    try:
        return text.encode("utf-8"), "utf-8"
    except UnicodeEncodeError as error:
        raise NoEffect("NOT_TEXT", "`text` holds half a character.", suggestion="Write whole characters.") from error


# ---------------------------------------------------------------------- the tree


@dataclass(frozen=True, slots=True)
class _Tree:
    """The roots as one tree of names. Nothing else opens anything."""

    roots: Mapping[str, Path]
    denied: Sequence[str]

    def located(self, path: str) -> tuple[Path | None, list[str]]:
        """Return the root of a path and the components below it; no root for the top of a tree of several.

        Raises:
            ToolError: It is denied, or the first component is no root.
        """
        parts = [] if path == "." else path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or self.denies(parts):
            raise NoEffect(Code.NOT_PERMITTED, f"`{path}` may not be opened here.", suggestion=_LOOK)
        if "" in self.roots:
            return self.roots[""], parts
        if not parts:
            return None, []
        if parts[0] not in self.roots:
            raise NoEffect("FILE_NOT_FOUND", f"There is no folder `{parts[0]}`.", suggestion=self._near(parts[0]))
        return self.roots[parts[0]], parts[1:]

    def denies(self, parts: Sequence[str]) -> bool:
        """Whether one of these names is denied, however it is spelled."""
        return any(fnmatchcase(folded(part), pattern) for part in parts for pattern in self.denied)

    def _near(self, name: str) -> str:
        near = names.nearest(name, self.roots)
        return f"Did you mean `{near[0]}`? {_LOOK}" if near else f"The folders are {', '.join(self.roots)}."

    @contextmanager
    def folder(self, path: str, *, make: bool = False, wanted: str = "") -> Iterator[int]:
        """Give the descriptor of a folder, made on the way if so wanted; errors name what was `wanted` in it."""
        root, parts = self.located(path)
        if root is None:
            raise NoEffect("NOT_A_FOLDER", "This is the list of folders itself.", suggestion=_LOOK)
        here = os.open(root, _FOLDER & ~os.O_NOFOLLOW)  # the root itself is the programmer's word
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                below = os.open(part, _FOLDER, dir_fd=here)
                os.close(here)
                here = below
            _refuse_pseudo(here, path)
            yield here
        except OSError as error:
            raise _told(error, wanted or path) from error
        finally:
            os.close(here)

    @contextmanager
    def place(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Give the descriptor of the folder that a file is in, and the file's name there."""
        _, parts = self.located(path)
        above, _, name = path.rpartition("/")
        if not parts or not name:
            raise NoEffect("NOT_A_FILE", f"`{path}` is a folder.", suggestion=_LOOK)
        with self.folder(above or ".", make=make, wanted=path) as here:
            yield here, name

    def contents(self, path: str, most_bytes: int) -> tuple[bytes, str]:
        """Return what a regular file holds, and its version.

        Raises:
            ToolError: It is not there, no regular file, or larger than this.
        """
        with self.place(path) as (folder, name):
            return _contents(folder, name, path, most_bytes)


_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever; a regular file does not care.
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def folded(name: str) -> str:
    """Return one form for all spellings of a name that some file system takes for the same one.

    >>> folded(".ENV"), folded(".e\\u200dnv"), folded("．ｅｎｖ."), folded("x.PEM ")
    ('.env', '.env', '.env', 'x.pem')
    """
    visible = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", visible.casefold()).rstrip(". ")


def _contents(folder: int, name: str, path: str, most_bytes: int) -> tuple[bytes, str]:
    """Read one file; it is looked at before it is opened, for opening a device may do something, and after."""
    _refuse_irregular(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    file = os.open(name, _FILE, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        _refuse_irregular(found, path)
        _refuse_pseudo(file, path)
        data = opened.read(most_bytes + 1)  # never by its size: a file may grow while it is read
    if len(data) > most_bytes:
        raise NoEffect(
            "FILE_TOO_LARGE",
            f"`{path}` is larger than {most_bytes:,} bytes.",
            suggestion="Go on without it, or tell the user.",
        )
    return data, _version(data, found)


def _version(data: bytes, found: os.stat_result) -> str:
    """Name what a file holds at this moment; the same text written again at another time is another version."""
    return hashlib.sha256(b"%d:%d:" % (found.st_mtime_ns, found.st_ino) + data).hexdigest()[:16]


def _refuse_irregular(found: os.stat_result, path: str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((said for test, said in _KINDS if test(found.st_mode)), "neither a file nor a folder")
    code = Code.NOT_PERMITTED if stat.S_ISLNK(found.st_mode) else "NOT_A_FILE"
    raise NoEffect(code, f"`{path}` is {kind}.", suggestion=_LOOK)


_KINDS: Sequence[tuple[Callable[[int], bool], str]] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link, and links are not followed"),
)


def _refuse_pseudo(descriptor: int, path: str) -> None:
    """Refuse what the kernel makes up, wherever it is mounted: the root may hold a whole file system."""
    if os.fstat(descriptor).st_dev in _pseudo():
        raise NoEffect(Code.NOT_PERMITTED, f"`{path}` may not be opened here.", suggestion=_LOOK)


def _pseudo() -> set[int]:
    return {each.stat().st_dev for each in map(Path, ("/proc", "/sys", "/dev")) if each.is_mount()}


def _told(error: OSError, path: str) -> ToolError:
    """Word what the system said. Nothing of it came from after a write had its effect."""
    number = error.errno or 0
    code, text = _ERRORS.get(number, ("NOT_USABLE", f"The system refuses `{{}}` ({errorcode.get(number, 'unknown')})."))
    return NoEffect(code, text.format(path), suggestion=_LOOK)


_NO_LINKS = (Code.NOT_PERMITTED, "`{}` leads through a link, and links are not followed.")
_ERRORS = {
    errno.ENOENT: ("FILE_NOT_FOUND", "There is no `{}`."),
    errno.ENOTDIR: ("NOT_A_FOLDER", "A part of `{}` is no folder, or a link, and links are not followed."),
    errno.ELOOP: _NO_LINKS,
    errno.EMLINK: _NO_LINKS,  # what FreeBSD says instead
    errno.EACCES: ("NOT_READABLE", "`{}` may not be used by this program."),
    errno.EPERM: ("NOT_READABLE", "`{}` may not be used by this program."),
    errno.EEXIST: ("FILE_EXISTS", "`{}` is there already; read it, and give its version to replace it."),
    errno.ENOSPC: ("DISK_FULL", "There is no room for `{}`."),
}


# ---------------------------------------------------------------------- the tools

NamePattern = Annotated[str, Field(max_length=200)]
Search = Annotated[str, Field(min_length=1, max_length=500)]


class Files(Toolset):
    """Tools for the files below some folders.

    Args:
        roots: Folders; their own names are what the model calls them when there are several. A mapping gives others.
        writing: Offer `write_file` too. It asks a person each time, unless `approve` says otherwise.
        denied: Patterns of names that are neither shown nor opened; `(*DENIED, "*.bak")` adds one.
        most_bytes: Of one file that are read or written.
        approve: When a person must agree to a write, as in `@tool`.

    Raises:
        ConfigError: A root is no folder, two have one name, or this system cannot open relative to a folder (Windows).
    """

    def __init__(
        self,
        roots: Sequence[str | Path] | Mapping[str, str | Path],
        *,
        writing: bool = False,
        denied: Sequence[str] = DENIED,
        most_bytes: int = MOST_BYTES,
        approve: bool | str | Callable[..., bool] = True,
    ) -> None:
        patterns = [folded(each) for each in (*denied, KEPT, f"{KEPT}-*")]
        self._tree = _Tree(_named(roots), patterns)
        self._most_bytes = most_bytes
        tools = [
            FunctionTool(self.read_file, effect="read", timeout_s=15, resource="file:{path}", aliases=_READ),
            FunctionTool(self.list_files, effect="read", timeout_s=15, aliases=_LIST),
            FunctionTool(self.search_files, effect="read", timeout_s=30, aliases=_SEARCH),
        ]
        if writing:
            tools.append(
                FunctionTool(
                    self.write_file,
                    effect="write",
                    timeout_s=15,
                    resource="file:{path}",
                    approve=approve,
                    # No key across runs: the same text may rightly be written again after somebody changed the file.
                    # `version` is what keeps a second write out, and `verify` tells whether the first one happened.
                    verify=self.was_written,
                    compensate=self.restore,
                    aliases=_WRITE,
                )
            )
        super().__init__(tools)

    def read_file(
        self,
        path: RelativePath,
        context: Context[Any],
        first_line: Annotated[int, Field(ge=1)] = 1,
        max_lines: Annotated[int, Field(ge=1, le=2000)] = 200,
    ) -> Text:
        """Read lines of a text file.

        Use it when you know the file's path; use list_files or search_files to find it. Not for pictures or other
        binary files. Returns the lines with the file's encoding, how many lines it has, and its version.

        Args:
            path: Path such as "reports/may.md", with "/" between folders.
            first_line: Number of the first line to read, from 1. Where has_more is true, go on with last_line + 1.
            max_lines: Number of lines to read at most.
        """
        data, version = self._tree.contents(path, self._most_bytes)
        if context.cancelled.is_set():
            raise ToolError(Code.CANCELLED, "The call was given up.", suggestion="Call again if it is still wanted.")
        text, encoding = _text(data, path)
        lines = _lines(text)
        shown = lines[first_line - 1 : first_line - 1 + max_lines]
        last = first_line - 1 + len(shown)
        return Text(
            path=path, encoding=encoding, version=version, first_line=first_line, last_line=last, lines=len(lines),
            has_more=last < len(lines), text="".join(shown),
        )  # fmt: skip

    def list_files(
        self, context: Context[Any], folder: RelativePath = ".", pattern: NamePattern = "*", recursive: bool = False
    ) -> Listing:
        """List what a folder holds, with sizes in bytes.

        Use it to find a file by its name. To find it by what it says, use search_files. Links are listed and never
        followed. Returns at most 500 entries, by name; where has_more is true, ask for a narrower pattern or folder.

        Args:
            folder: Folder such as "reports"; "." is all there is.
            pattern: File names to list, such as "*.md"; "*" is all. Without "*" at its start, names must begin so.
            recursive: List the files of all folders below as well.
        """
        entries: list[Entry] = []
        for entry in self._walk(folder, context.cancelled, MOST_DEPTH if recursive else 1):
            if fnmatchcase(entry["path"].rpartition("/")[2], pattern):
                if len(entries) == MOST_ENTRIES:
                    return Listing(entries=entries, has_more=True)
                entries.append(entry)
        return Listing(entries=entries, has_more=context.cancelled.is_set())

    def search_files(
        self,
        text: Search,
        context: Context[Any],
        folder: RelativePath = ".",
        pattern: NamePattern = "*",
        is_regex: bool = False,
    ) -> Matches:
        """Find the lines that contain a text, in the files of a folder and of all folders below.

        Use it to find where something is said; then read around it with read_file. Letters count as the same in upper
        and lower case. Returns at most 100 matches as path, line number and line; where has_more is true,
        ask for a narrower text, pattern or folder.

        Args:
            text: What to look for: a literal text such as "refund", or a pattern when is_regex is true.
            folder: Folder such as "reports"; "." is all there is.
            pattern: File names to search, such as "*.md"; "*" is all.
            is_regex: Take the text for a regular expression, without look-around and back-references.
        """
        fits = _matcher(text, is_regex)
        found = Matches(matches=[], files_searched=0, unread=0, has_more=False)
        read = 0
        for entry in self._walk(folder, context.cancelled, MOST_DEPTH):
            if entry["kind"] != "file" or not fnmatchcase(entry["path"].rpartition("/")[2], pattern):
                continue
            if read + entry["bytes"] > MOST_SEARCHED_BYTES:
                found["has_more"] = True
                return found
            try:
                data, _ = self._tree.contents(entry["path"], self._most_bytes)
                lines = _lines(decoded(data)[0])
            except (ToolError, ValueError):
                found["unread"] += 1
                continue
            read += len(data)
            found["files_searched"] += 1
            for number, line in enumerate(lines, 1):
                if fits(line[:LINE_SEARCHED]):
                    if len(found["matches"]) == MOST_MATCHES:
                        found["has_more"] = True
                        return found
                    found["matches"].append(
                        Match(path=entry["path"], line=number, text=line.rstrip("\r\n")[:LINE_SHOWN])
                    )
        found["has_more"] = context.cancelled.is_set()
        return found

    def write_file(
        self,
        path: RelativePath,
        text: Annotated[str, Field(max_length=1_000_000)],
        context: Context[Any],
        version: Annotated[str, Field(pattern="^([0-9a-f]{16})?$")] = "",
    ) -> Written:
        """Write a whole text file: create it, or replace what it holds.

        To replace a file, read it first and give its version; a file that has changed since is left alone. Use it only
        when the user wants the file changed. A person is asked before it happens, and it can be undone.

        Args:
            path: Path such as "reports/may.md", with "/" between folders. Folders that are missing are made.
            text: The whole text that the file will hold.
            version: Version from read_file of the file to replace, such as "9f86d081884c7d65"; leave it out for a new
                file.
        """
        if context.cancelled.is_set():
            raise NoEffect(Code.CANCELLED, "The call was given up.", suggestion="Call again if it is still wanted.")
        with self._tree.place(path, make=not version) as (folder, name):
            encoding = "utf-8"
            if version:
                there, now = _contents(folder, name, path, self._most_bytes)
                if now != version:
                    _changed(path)
                encoding = _text(there, path)[1]
            data, encoding = _encoded(text, encoding)
            if len(data) > self._most_bytes:
                told = f"`text` is larger than {self._most_bytes:,} bytes."
                raise NoEffect("FILE_TOO_LARGE", told, suggestion="Write less, or in several files.")
            with self._tree.folder(self._root_of(path)) as root:
                now = _replaced(folder, name, data, keep=(root, version) if version else None)
        return _written(path, now, encoding, data, version)

    def texts(self, endings: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield path and text of every file whose name ends so, for programs; what is no text is left out."""
        for entry in self._walk(".", Event(), MOST_DEPTH):
            if entry["kind"] == "file" and entry["path"].lower().endswith(tuple(endings)):
                with suppress(ToolError, ValueError):
                    yield entry["path"], decoded(self._tree.contents(entry["path"], self._most_bytes)[0])[0]

    def was_written(self, arguments: Mapping[str, Json], _: Context[Any]) -> Found | NotFound | Unknown:
        """Say whether a write happened whose answer was lost: its text is there, or what it was to replace still is."""
        path, wanted = arguments["path"], arguments.get("version", "")
        try:
            data, version = self._tree.contents(path, self._most_bytes)
            text, encoding = decoded(data)
        except (ToolError, ValueError) as error:
            gone = isinstance(error, ToolError) and error.failure.code == "FILE_NOT_FOUND"
            return NotFound() if gone and not wanted else Unknown()
        if text == arguments["text"]:
            return Found(_written(path, version, encoding, data, wanted))
        return NotFound() if version == wanted else Unknown()

    def restore(self, path: str, result: Mapping[str, Json], **_: Any) -> str:
        """Undo a write: put back what was there, or remove the file if it was new. Folders that it made stay.

        Raises:
            NoEffect: Somebody has changed the file since, or what was kept is gone; all is left alone.
        """
        with self._tree.place(path) as (folder, name):
            if _contents(folder, name, path, self._most_bytes)[1] != result["version"]:
                _changed(path)
            if not result["kept"]:
                os.unlink(name, dir_fd=folder)
                return f"{path} was removed again"
            with self._tree.folder(self._root_of(path)) as root:
                kept = os.open(KEPT, _FOLDER, dir_fd=root)
                try:
                    os.replace(result["kept"], name, src_dir_fd=kept, dst_dir_fd=folder)
                finally:
                    os.close(kept)
        return f"{path} holds again what it held before"

    def _root_of(self, path: str) -> str:
        return "." if "" in self._tree.roots else path.partition("/")[0]

    def _walk(self, folder: str, given_up: Event, depth: int) -> Iterator[Entry]:
        """Yield what is below a folder, folders before what is in them, until the call is given up or it is enough."""
        waiting = [(folder, depth)]
        if self._tree.located(folder)[0] is None:
            yield from (Entry(path=name, kind="folder", bytes=0) for name in self._tree.roots)
            waiting = [(name, depth - 1) for name in self._tree.roots] if depth > 1 else []
        seen = 0
        while waiting:
            here, left = waiting.pop(0)
            try:
                found = self._entries(here)
            except ToolError:
                if here == folder:
                    raise
                continue  # gone, swapped for a link, or not ours to read: meanwhile, or always
            for entry in found:
                if given_up.is_set() or seen == MOST_LOOKED_AT:
                    return
                seen += 1
                yield entry
            if left > 1:
                waiting[:0] = [(entry["path"], left - 1) for entry in found if entry["kind"] == "folder"]

    def _entries(self, path: str) -> list[Entry]:
        above = "" if path == "." else f"{path}/"
        found = []
        with self._tree.folder(path) as here, os.scandir(here) as entries:
            for each in islice(entries, MOST_LOOKED_AT):
                name = each.name
                if self._tree.denies([name]) or not name.isprintable():
                    continue
                at = each.stat(follow_symlinks=False)
                kind = next((kind for test, kind in _LISTED if test(at.st_mode)), "other")
                found.append(Entry(path=above + name, kind=kind, bytes=at.st_size if kind == "file" else 0))
        return sorted(found, key=lambda entry: entry["path"])


_LISTED: Sequence[tuple[Callable[[int], bool], str]] = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "link"),
)
_READ = ("读取文件", "打开文件", "查看文件内容", "open", "cat")
_LIST = ("列出文件", "文件列表", "查看目录", "文件夹", "ls", "directory")
_SEARCH = ("搜索文件", "查找文件内容", "全文搜索", "grep")
_WRITE = ("写入文件", "保存文件", "新建文件", "修改文件", "save", "edit")


def _written(path: str, version: str, encoding: str, data: bytes, before: str) -> Written:
    kept = _kept_as(before, path.rpartition("/")[2]) if before else ""
    return Written(path=path, version=version, encoding=encoding, bytes=len(data), kept=kept)


def _replaced(folder: int, name: str, data: bytes, *, keep: tuple[int, str] | None) -> str:
    """Put data in a file's place, whole or not at all; return its version.

    A new file is linked to its name, which fails when there is one by now. An old one is linked to a second name, in
    the root and by the version in `keep`, before the new one takes its place, so it keeps its bytes, its times and its
    version.
    """
    own = f"{KEPT}-{token_hex(8)}"
    mode = 0o644 if keep is None else stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    file = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fchmod(file, mode)
            os.fsync(file)
            version = _version(data, os.fstat(file))
        if keep is None:
            os.link(own, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        else:
            _keep(folder, name, keep[0], _kept_as(keep[1], name))
            os.replace(own, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(OSError):
            os.unlink(own, dir_fd=folder)
    # It has happened. A folder that cannot be synced may lose it with the machine's power, which is no reason to say
    # that it did not.
    with suppress(OSError):
        os.fsync(folder)
    return version


def _kept_as(version: str, name: str) -> str:
    """Name what is kept by its version, so that whoever looks for it after a crash knows the name too."""
    return f"{version}-{name[:50]}"


def _keep(folder: int, name: str, root: int, kept: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(KEPT, 0o700, dir_fd=root)
    shelf = os.open(KEPT, _FOLDER, dir_fd=root)
    try:
        # There already: an attempt that died between this and the replacement kept the very same file.
        with suppress(FileExistsError):
            os.link(name, kept, src_dir_fd=folder, dst_dir_fd=shelf, follow_symlinks=False)
    finally:
        os.close(shelf)


def _changed(path: str) -> NoReturn:
    text = f"`{path}` is not as it was in that version: somebody has changed it since."
    raise NoEffect("VERSION_CHANGED", text, suggestion="Read it again with `read_file`, and decide anew.")


def _text(data: bytes, path: str) -> tuple[str, str]:
    try:
        return decoded(data)
    except ValueError as error:
        told = f"`{path}` {error} ({len(data):,} bytes)."
        raise NoEffect("NOT_TEXT", told, suggestion="Tell the user, or read another file.") from error


def _lines(text: str) -> list[str]:
    """Return the lines with their ends, numbered as every editor does: `splitlines` would end one at U+2028 too."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _matcher(text: str, is_regex: bool) -> Callable[[str], bool]:
    """Return what says whether a line fits. Patterns run on an engine that takes linear time, whatever they are."""
    if not is_regex:
        wanted = text.casefold()
        return lambda line: wanted in line.casefold()
    try:
        pattern = {"type": "string", "pattern": f"(?i){text}"}
        return jsonschema_rs.Draft202012Validator(pattern, pattern_options=jsonschema_rs.RegexOptions()).is_valid
    except jsonschema_rs.ValidationError as error:
        told = "`text` is no regular expression that can be searched for in linear time."
        advice = "Leave out look-around and back-references, or search for a literal text with is_regex false."
        raise ToolError("BAD_PATTERN", told, suggestion=advice) from error


def _named(roots: Sequence[str | Path] | Mapping[str, str | Path]) -> Mapping[str, Path]:
    """Return the roots by the name that the model calls them; the only one by none."""
    if sys.platform == "win32" or os.open not in os.supports_dir_fd:
        raise ConfigError(
            "Files opens relative to a folder and follows no link; this system cannot. Use WSL2 or Linux."
        )
    if isinstance(roots, str | Path) or not roots:
        raise ConfigError('Files takes a list of folders, such as Files(roots=["reports"])')
    given = dict(roots) if isinstance(roots, Mapping) else {}
    for root in () if isinstance(roots, Mapping) else roots:
        name = Path(root).resolve().name
        if name in given:
            raise ConfigError(f"two roots are called {name!r}; name them: Files(roots={{'a': ..., 'b': ...}})")
        given[name] = root
    for name, root in given.items():
        if not Path(root).is_dir():
            raise ConfigError(f"{root} is no folder, so it can be no root of Files")
        if len(given) > 1 and (not name or "/" in name):
            raise ConfigError(f"a root cannot be called {name!r}; name it: Files(roots={{'name': ...}})")
    found = {name: Path(root).resolve() for name, root in given.items()}
    return {"": next(iter(found.values()))} if len(found) == 1 and not isinstance(roots, Mapping) else found
