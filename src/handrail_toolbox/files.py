"""Files: read, list and search within folders that the programmer names, and write there with somebody's agreement.

    runtime = hr.Runtime(Files(roots=["/srv/handbook"]))                    # read_file, list_files, search_files
    runtime = hr.Runtime([*Files(roots=["notes", "reports"], writing=True), other_tool])     # and write_file

One root is the tree that the model sees; several are folders of it, each by its own name.

`confined` opens and replaces, `decoding` tells encodings apart; here is what the model asks for and reads.

Rule 1: nothing is opened here: `Tree` alone does, and only relative to a descriptor.
Rule 2: a file is replaced only by whoever has seen what is there (`version`), and can be put back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Annotated, Any, NoReturn, NotRequired, TypedDict

import jsonschema_rs
from pydantic import Field

from handrail.context import Context
from handrail.effects import Found, NotFound, Unknown
from handrail.errors import Code, Json, NoEffect, ToolError
from handrail.guards import RelativePath
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Sends, Write
from handrail.tools.toolset import Toolset
from handrail_toolbox.confined import (
    BACKUPS,
    Tree,
    backup_name,
    contents,
    fold,
    lock_folder,
    name_roots,
    replace_file,
    restore_file,
)
from handrail_toolbox.decoding import decode, encode, split_lines

DENIED = (
    ".env",
    ".env.*",
    ".git",
    ".ssh",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".aws",
    ".kube",
    "*.pem",
    "*.key",
    "id_*",
)
"""Names that are neither shown nor opened: secrets mostly, and `.git`, where a written file is a program that runs."""

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
    """What a search found; `unread` are files that are no text, too large, or could not be opened.

    `note` says what else to try when nothing was found.
    """

    matches: list[Match]
    files_searched: int
    unread: int
    has_more: bool
    note: NotRequired[str]


class Written(TypedDict):
    """What was written. `kept` names the backup of the earlier content, for undoing; empty for a new file."""

    path: str
    version: str
    encoding: str
    bytes: int
    kept: str


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
        patterns = [fold(each) for each in (*denied, BACKUPS, f"{BACKUPS}-*")]
        self._tree = Tree(name_roots(roots), patterns)
        self._most_bytes = most_bytes
        tools = [
            FunctionTool(
                self.read_file,
                effect="read",
                timeout_s=15,
                resource="file:{path}",
                aliases=_READ,
            ),
            FunctionTool(
                self.list_files,
                effect="read",
                timeout_s=15,
                aliases=_LIST,
            ),
            FunctionTool(
                self.search_files,
                effect="read",
                timeout_s=30,
                aliases=_SEARCH,
            ),
        ]
        if writing:
            tools.append(
                FunctionTool(
                    self.write_file,
                    effect="write",
                    # it stays in the folder
                    sends=Sends(egress=False, trust="trusted"),
                    # it answers in our own words
                    timeout_s=15,
                    resource="file:{path}",
                    approve=approve,
                    # No key across runs: the same text may rightly be written again after somebody changed the file.
                    # `version` is what keeps a second write out, and `verify` tells whether the first one happened.
                    verify=self.was_written,
                    write=Write(compensate=self.restore),
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
            raise ToolError(
                Code.CANCELLED,
                "The call was given up.",
                suggestion="Call again if it is still wanted.",
            )
        text, encoding = _text(data, path)
        lines = split_lines(text)
        shown = lines[first_line - 1 : first_line - 1 + max_lines]
        last = first_line - 1 + len(shown)
        return Text(
            path=path,
            encoding=encoding,
            version=version,
            first_line=first_line,
            last_line=last,
            lines=len(lines),
            has_more=last < len(lines),
            text="".join(shown),
        )

    def list_files(
        self,
        context: Context[Any],
        folder: RelativePath = ".",
        pattern: NamePattern = "*",
        recursive: bool = False,
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
        for entry in self._walk(
            folder, context.cancelled, MOST_DEPTH if recursive else 1
        ):
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
        matches = Matches(
            matches=[],
            files_searched=0,
            unread=0,
            has_more=False,
        )
        read = 0
        for entry in self._walk(folder, context.cancelled, MOST_DEPTH):
            if entry["kind"] != "file" or not fnmatchcase(
                entry["path"].rpartition("/")[2], pattern
            ):
                continue
            if read + entry["bytes"] > MOST_SEARCHED_BYTES:
                matches["has_more"] = True
                return matches
            try:
                data, _ = self._tree.contents(entry["path"], self._most_bytes)
                lines = split_lines(decode(data)[0])
            except (ToolError, ValueError):
                matches["unread"] += 1
                continue
            read += len(data)
            matches["files_searched"] += 1
            for number, line in enumerate(lines, 1):
                if context.cancelled.is_set():
                    break
                if fits(line[:LINE_SEARCHED]):
                    if len(matches["matches"]) == MOST_MATCHES:
                        matches["has_more"] = True
                        return matches
                    matches["matches"].append(
                        Match(
                            path=entry["path"],
                            line=number,
                            text=line.rstrip("\r\n")[:LINE_SHOWN],
                        )
                    )
        matches["has_more"] = context.cancelled.is_set()
        if not matches["matches"] and not matches["has_more"]:
            matches["note"] = (
                "No line matches. Try a shorter text, another folder or pattern, or `list_files`."
            )
        return matches

    def write_file(
        self,
        path: RelativePath,
        text: Annotated[str, Field(max_length=1_000_000)],
        context: Context[Any],
        version: Annotated[str, Field(pattern="^([0-9a-f]{16})?$")] = "",
    ) -> Written:
        """Write a whole text file: create it, or replace what it holds.

        To replace a file, read it first and give its version; a file that has changed since is left alone. Use it only
        when the user wants the file changed. A person may be asked before it happens, and it can be undone.

        Args:
            path: Path such as "reports/may.md", with "/" between folders. Folders that are missing are made.
            text: The whole text that the file will hold.
            version: Version from read_file of the file to replace, such as "9f86d081884c7d65"; leave it out for a new
                file.
        """
        if context.cancelled.is_set():
            raise NoEffect(
                Code.CANCELLED,
                "The call was given up.",
                suggestion="Call again if it is still wanted.",
            )
        with (
            self._tree.place(path, make=not version) as (folder, name),
            lock_folder(folder, path, context.cancelled),
        ):
            encoding = "utf-8"
            if version:
                there, now = contents(folder, name, path, self._most_bytes)
                if now != version:
                    _refuse_changed(path)
                encoding = _text(there, path)[1]
            data, encoding = encode(text, encoding)
            if len(data) > self._most_bytes:
                message = f"`text` is larger than {self._most_bytes:,} bytes."
                raise NoEffect(
                    "FILE_TOO_LARGE",
                    message,
                    suggestion="Write less, or in several files.",
                )
            with self._tree.folder(self._root_folder(path)) as root:
                now = replace_file(
                    folder, name, data, keep=(root, version) if version else None
                )
        return _write_result(path, now, encoding, data, version)

    def texts(self, endings: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield path and text of every file whose name ends so, for programs; what is no text is left out."""
        for entry in self._walk(".", Event(), MOST_DEPTH):
            if entry["kind"] == "file" and entry["path"].lower().endswith(
                tuple(endings)
            ):
                with suppress(ToolError, ValueError):
                    yield (
                        entry["path"],
                        decode(self._tree.contents(entry["path"], self._most_bytes)[0])[
                            0
                        ],
                    )

    def was_written(
        self, arguments: Mapping[str, Json], _: Context[Any]
    ) -> Found | NotFound | Unknown:
        """Return whether a write without an answer happened: its text is there, or the earlier content still is."""
        path = arguments["path"]
        wanted = arguments.get("version", "")
        try:
            data, version = self._tree.contents(path, self._most_bytes)
            text, encoding = decode(data)
        except (ToolError, ValueError) as error:
            gone = (
                isinstance(error, ToolError) and error.failure.code == "FILE_NOT_FOUND"
            )
            if gone and not wanted:
                return NotFound()
            return Unknown()
        if text == arguments["text"]:
            return Found(_write_result(path, version, encoding, data, wanted))
        return NotFound() if version == wanted else Unknown()

    def restore(self, path: str, result: Mapping[str, Json], **_: Any) -> str:
        """Undo a write: put back what was there, or remove the file if it was new. Folders that it made stay.

        Raises:
            NoEffect: Somebody has changed the file since, or the backup is gone; nothing is changed.
        """
        with (
            self._tree.place(path) as (folder, name),
            lock_folder(folder, path, Event()),
        ):
            if contents(folder, name, path, self._most_bytes)[1] != result["version"]:
                _refuse_changed(path)
            if not result["kept"]:
                os.unlink(name, dir_fd=folder)
                return f"{path} was removed again"
            with self._tree.folder(self._root_folder(path)) as root:
                restore_file(folder, name, root, result["kept"])
        return f"{path} holds again what it held before"

    def _root_folder(self, path: str) -> str:
        if "" in self._tree.roots:
            return "."
        return path.partition("/")[0]

    def _walk(self, folder: str, given_up: Event, depth: int) -> Iterator[Entry]:
        """Yield what is below a folder, folders before what is in them, until the call is given up or it is enough."""
        if self._tree.locate(folder)[0] is None:
            roots = [
                Entry(path=name, kind="folder", bytes=0) for name in self._tree.roots
            ]
            yield from roots
            waiting = _enter_folders(roots, depth)
        else:
            waiting = [(folder, depth)]
        count = 0
        while waiting:
            here, left = waiting.pop(0)
            try:
                entries = self._entries(here)
            except ToolError:
                if here == folder:
                    raise
                # gone, swapped for a link, or not ours to read: meanwhile, or always
                continue
            for entry in entries:
                if given_up.is_set() or count == MOST_LOOKED_AT:
                    return
                count += 1
                yield entry
            waiting[:0] = _enter_folders(entries, left)

    def _entries(self, path: str) -> list[Entry]:
        above = "" if path == "." else f"{path}/"
        listed = []
        with self._tree.folder(path) as here, os.scandir(here) as entries:
            for each in islice(entries, MOST_LOOKED_AT):
                name = each.name
                if not self._tree.shows(name):
                    continue
                try:
                    at = each.stat(follow_symlinks=False)
                except FileNotFoundError:  # gone since the folder was read
                    continue
                kind = next(
                    (kind for test, kind in _LISTED if test(at.st_mode)), "other"
                )
                listed.append(
                    Entry(
                        path=above + name,
                        kind=kind,
                        bytes=at.st_size if kind == "file" else 0,
                    )
                )
        return sorted(listed, key=lambda entry: entry["path"])


def _enter_folders(entries: Sequence[Entry], depth: int) -> list[tuple[str, int]]:
    """Return the folders to read next, each with its depth; none when `depth` is used up."""
    if depth <= 1:
        return []
    return [(each["path"], depth - 1) for each in entries if each["kind"] == "folder"]


_LISTED: Sequence[tuple[Callable[[int], bool], str]] = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "link"),
)
_READ = ("读取文件", "打开文件", "查看文件内容", "open", "cat")
_LIST = ("列出文件", "文件列表", "查看目录", "文件夹", "ls", "directory")
_SEARCH = ("搜索文件", "查找文件内容", "全文搜索", "grep")
_WRITE = ("写入文件", "保存文件", "新建文件", "修改文件", "save", "edit")


def _write_result(
    path: str, version: str, encoding: str, data: bytes, before: str
) -> Written:
    if before:
        backup = backup_name(before, path.rpartition("/")[2])
    else:
        backup = ""
    return Written(
        path=path,
        version=version,
        encoding=encoding,
        bytes=len(data),
        kept=backup,
    )


def _refuse_changed(path: str) -> NoReturn:
    text = f"`{path}` is not as it was in that version: somebody has changed it since."
    raise NoEffect(
        "VERSION_CHANGED",
        text,
        suggestion="Read it again with `read_file`, and decide again.",
    )


def _text(data: bytes, path: str) -> tuple[str, str]:
    try:
        return decode(data)
    except ValueError as error:
        message = f"`{path}` {error} ({len(data):,} bytes)."
        raise NoEffect(
            "NOT_TEXT", message, suggestion="Tell the user, or read another file."
        ) from error


def _matcher(text: str, is_regex: bool) -> Callable[[str], bool]:
    """Return what says whether a line fits. Patterns run on an engine that takes linear time, whatever they are."""
    if not is_regex:
        wanted = text.casefold()
        return lambda line: wanted in line.casefold()
    try:
        pattern = {"type": "string", "pattern": f"(?i){text}"}
        return jsonschema_rs.Draft202012Validator(
            pattern, pattern_options=jsonschema_rs.RegexOptions()
        ).is_valid
    except jsonschema_rs.ValidationError as error:
        message = (
            "`text` is no regular expression that can be searched for in linear time."
        )
        advice = "Leave out look-around and back-references, or search for a literal text with is_regex false."
        raise ToolError("BAD_PATTERN", message, suggestion=advice) from error
