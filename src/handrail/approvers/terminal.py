"""Asks in the terminal whether a call may run: approve, deny with a reason, or edit the arguments first.

Where several people must agree, each is asked for a name, since a terminal knows its user and not who sits there;
nothing is edited then, and whoever is alone leaves the question open for somebody elsewhere.

What is shown was written by a model, so it may try to paint over the question: everything is shown with control
characters, and those that reorder or hide text, escaped.

Rule 1: nobody at the terminal is no answer. Without a terminal, or at its end, None is returned and the call waits.
Rule 2: one question at a time, however many calls ask.
Rule 3: only a clear word approves; anything else is asked again.
Rule 4: what was typed before a question stood on the screen is no answer to it, and is dropped.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import util
from pathlib import Path
from textwrap import wrap
from threading import Lock
from typing import Literal, TextIO, TypeAlias

from handrail.approvers.arguments import exact, in_short, warnings
from handrail.effects import Approval, AskHuman, Provenance
from handrail.errors import ConfigError, Failure, Json
from handrail.invisible import check_person
from handrail.invisible import printable as printable
from handrail.records import ApprovalRequest, not_counted
from handrail.schemas.validation import Checker

Word: TypeAlias = Literal["approve", "deny", "edit", "leave"]

_WORDS: Mapping[str, Word] = {
    "a": "approve",
    "approve": "approve",
    "y": "approve",
    "yes": "approve",
    "d": "deny",
    "deny": "deny",
    "n": "deny",
    "no": "deny",
    "e": "edit",
    "edit": "edit",
    "l": "leave",
    "leave": "leave",
}

# Apart from whatever else the terminal shows, in line with the timeline of the command line.
_INDENT = " " * 9

# How often a waiting question looks whether it has been left.
_LOOK_S = 0.1


class _NobodyThere(Exception):  # not an error: the terminal's end
    """The terminal has ended, or whoever asked has gone."""


class TerminalApprover:
    """A person at the terminal.

    Args:
        input: Where answers are read; the process's own terminal by default.
        output: Where questions are written: stderr by default, because stdout belongs to results.
        by: Who answers, for the record; the login name by default.
        editor: Command that edits a file; $VISUAL or $EDITOR by default, and one line of JSON where there is none.
    """

    def __init__(
        self,
        *,
        input: TextIO | None = None,
        output: TextIO | None = None,
        by: str = "",
        editor: str | None = None,
    ) -> None:
        self._input = input
        self._output = output
        if by:
            check_person("by", by)
        self.by = by or _login_name()
        if editor is None:
            self.editor = os.environ.get("VISUAL") or os.environ.get("EDITOR", "")
        else:
            self.editor = editor
        self._one_at_a_time = Lock()
        self.visit = 0
        self._shown: AskHuman | None = None
        self._withdrawn: list[AskHuman] = []

    def __call__(self, asked: AskHuman) -> Approval | None:
        """Ask about one call; None when nobody is there."""
        visit = self.visit
        with self._one_at_a_time:
            keyboard = self._keyboard()
            if keyboard is None or visit != self.visit or self.is_withdrawn(asked):
                return None
            self._shown = asked
            try:
                return _TerminalQuestion(
                    keyboard, self._output or sys.stderr, self, visit
                ).ask(asked)
            except _NobodyThere:
                return None
            finally:
                self._shown = None
                self._withdrawn = [
                    each for each in self._withdrawn if each is not asked
                ]

    def withdraw(self, asked: AskHuman, question: ApprovalRequest) -> None:
        """See `ports.Withdrawing`; the answer from elsewhere is printed at once, before anything else is shown."""
        self._withdrawn.append(asked)
        if self._shown is asked and question.state != "open":
            by = f" by {printable(question.by)}" if question.by else ""
            screen = self._output or sys.stderr
            screen.write(
                f"\n{_INDENT}This question is taken back: it is {question.state}{by}.\n"
            )
            screen.flush()

    def is_withdrawn(self, asked: AskHuman) -> bool:
        """Whether nobody waits for the answer to a question any longer."""
        return any(each is asked for each in self._withdrawn)

    def leave(self) -> None:
        """Give up every open question, since whoever asked has gone. Later questions are asked as before."""
        self.visit += 1

    @property
    def is_there(self) -> bool:
        """Whether there is a terminal to ask in."""
        return self._keyboard() is not None

    def _keyboard(self) -> TextIO | None:
        # None when the process was started with stdin closed
        keyboard = self._input or sys.stdin
        if keyboard is not None and not keyboard.closed and keyboard.isatty():
            return keyboard
        return None


class _TerminalQuestion:
    """One question, from its first line to the answer."""

    def __init__(
        self, keyboard: TextIO, screen: TextIO, approver: TerminalApprover, visit: int
    ) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._approver = approver
        self._visit = visit
        self._by = approver.by
        self._draft = ""

    def ask(self, asked: AskHuman) -> Approval:
        """Show the call and return a clear answer."""
        self._asked = asked
        self._introduce(asked)
        self._show(asked.arguments)
        _discard_typed_input(self._keyboard)
        if asked.required_approvals == 1 and not not_counted(self._by, asked):
            return self._ask_one(asked)
        return self._ask_among_several(asked)

    def _introduce(self, asked: AskHuman) -> None:
        self._say(
            f"\n{_INDENT}{printable(asked.call.name)} wants to run. Risk: {asked.risk}\n"
        )
        for line in _paragraphs(asked.description):
            for row in _wrap_prose(printable(line), self._screen):
                self._say(f"{_INDENT}{row}\n")
        if asked.reason:
            self._say(f"{_INDENT}Why you are asked: {printable(asked.reason)}\n")
        if asked.provenance is not None:
            for line in _describe_provenance(asked.provenance):
                self._say(f"{_INDENT}{printable(line)}\n")
        if asked.required_approvals > 1:
            self._say(
                f"{_INDENT}{asked.required_approvals} people must agree{self._others(asked)}.\n"
            )
        elif why := not_counted(self._by, asked):
            for row in _wrap_prose(printable(why), self._screen):
                self._say(f"{_INDENT}{row}\n")

    def _ask_one(self, asked: AskHuman) -> Approval:
        arguments = asked.arguments
        while True:
            match self._word("(a)pprove, (d)eny, (e)dit? "):
                case "approve":
                    edited = None if arguments == asked.arguments else arguments
                    return Approval(True, self._by, "", edited)
                case "deny":
                    return self._deny()
                case "edit":
                    arguments = self._edit(arguments)
                    self._show(arguments)
                case _:
                    self._say(f"{_INDENT}Answer a, d or e.\n")

    def _ask_among_several(self, asked: AskHuman) -> Approval:
        while True:
            match self._word("(a)pprove, (d)eny, (l)eave it open? "):
                case "approve":
                    if name := self._name(asked):
                        return Approval(True, name)
                case "deny":
                    return self._deny()
                case "leave":
                    raise _NobodyThere
                case _:
                    self._say(f"{_INDENT}Answer a, d or l.\n")

    def _word(self, prompt: str) -> Word | None:
        return _WORDS.get(self._line(prompt).strip().lower())

    def _deny(self) -> Approval:
        return Approval(False, self._by, self._line("Why? The model is told: ").strip())

    def _others(self, asked: AskHuman) -> str:
        """Say who has agreed and whose word does not count."""
        if asked.agreed:
            agreed = f"; {printable(', '.join(asked.agreed))} did"
        else:
            agreed = ""
        return agreed + (
            f"; not {printable(asked.principal)}, whom the run acts for"
            if asked.principal
            else ""
        )

    def _name(self, asked: AskHuman) -> str:
        """Ask who agrees; return nothing, and say why, where that does not count."""
        if not_counted(self._by, asked):
            usual = ""
        else:
            usual = self._by
        name = (
            self._line(
                f"Your name{f' ({printable(usual)})' if usual else ''}: "
            ).strip()
            or usual
        )
        why = not_counted(name, asked) if name else "it does not say whose it is"
        if why:
            self._say(f"{_INDENT}This does not count: {printable(why)}.\n")
            return ""
        return name

    def _edit(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Let the person edit the arguments. Arguments that do not fit the schema are refused, to be edited again."""
        editor = self._approver.editor
        before = self._draft or exact(arguments)
        self._draft = ""
        try:
            if editor:
                self._draft = edit_in(editor, before)
            else:
                self._draft = self._edit_line(before)
            value = _read(self._draft, self._asked.parameters)
        except (OSError, ValueError) as error:
            self._say(
                f"{_INDENT}Nothing was changed: {printable(str(error)).removesuffix('.')}.\n"
            )
            return arguments
        self._draft = ""
        return value

    def _edit_line(self, text: str) -> str:
        """Read a line from the person, prefilled with `text` where this terminal can do that.

        Raises:
            OSError: The person left it with Ctrl-C.
        """
        prompt = "Arguments as JSON: "
        if not (sys.executable and os.name == "posix" and util.find_spec("readline")):
            return self._line(prompt)
        line = " ".join(each.strip() for each in text.splitlines())
        with _line_editor(
            _INDENT + prompt, line, self._keyboard, self._screen
        ) as editing:
            while (code := editing.poll()) is None:
                self._check_withdrawn()
                with suppress(subprocess.TimeoutExpired):
                    editing.wait(_LOOK_S)
            if editing.stdout:
                edited = editing.stdout.read().decode()
            else:
                edited = ""
        if code:
            raise OSError("the edit was left")
        return edited

    def _show(self, arguments: Mapping[str, Json]) -> None:
        for line in (
            *in_short(arguments).splitlines(),
            *(f"Look twice: {each}" for each in warnings(arguments)),
        ):
            for row in _fold_json(line, self._screen):
                self._say(f"{_INDENT}{row}\n")

    def _say(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()

    def _line(self, prompt: str) -> str:
        """Return one line from the person."""
        self._say(_INDENT + prompt)
        typed = False
        while not typed:
            typed = _has_line(self._keyboard)
            # also with a line there: it is meant for whoever reads next
            self._check_withdrawn()
        line = self._keyboard.readline()
        if not line:
            self._say("\n")
            raise _NobodyThere
        return line

    def _check_withdrawn(self) -> None:
        if self._visit != self._approver.visit or self._approver.is_withdrawn(
            self._asked
        ):
            raise _NobodyThere


def _describe_provenance(provenance: Provenance) -> Iterator[str]:
    """Yield the values of a call that no trusted source has named, then the private ones; a line each, all of them."""
    for name, values in provenance.unnamed.items():
        for value in values:
            yield f"Nobody trusted has named: {name} {value!r}"
    for name, source in provenance.private.items():
        yield f"Private: {name} holds values that {source} returned"


def _read(text: str, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return edited arguments as the tool takes them.

    Raises:
        ValueError: They are no JSON object, or do not fit the schema.
    """
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("arguments are a JSON object")
    if parameters:
        checked = Checker(dict(parameters)).check(value)
    else:
        checked = None
    if isinstance(checked, Failure):
        raise ValueError(checked.message)
    return value


# Reads one prefilled line, for `_line_editor`. The prompt goes to the terminal, the line to stdout.
_EDIT_LINE = """
import os, readline, sys
result = os.dup(1)
os.dup2(2, 1)
readline.set_startup_hook(lambda: readline.insert_text(sys.argv[2]))
try:
    line = input(sys.argv[1])
except (EOFError, KeyboardInterrupt):
    sys.exit(1)
os.write(result, line.encode())
"""


@contextmanager
def _line_editor(
    prompt: str, line: str, keyboard: TextIO, screen: TextIO
) -> Iterator[subprocess.Popen[bytes]]:
    """Let the person edit a line, in a process of its own.

    In this process `readline` could not be interrupted: it holds the lock of stdin until Enter is pressed, and the
    question could not be withdrawn meanwhile.
    """
    import termios  # not on Windows

    before = termios.tcgetattr(keyboard)
    words = [sys.executable, "-I", "-c", _EDIT_LINE, prompt, line]
    with subprocess.Popen(
        words,
        stdin=keyboard,
        stdout=subprocess.PIPE,
        stderr=screen,
    ) as editing:
        try:
            yield editing
        finally:
            editing.kill()
            editing.wait()
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _discard_typed_input(keyboard: TextIO) -> None:
    """Forget lines that nobody has read: a second Enter for the last question would approve the next one unseen."""
    if sys.platform != "win32":
        import termios  # not on Windows

        with suppress(termios.error):  # the terminal has gone; reading says so
            termios.tcflush(keyboard, termios.TCIFLUSH)


def _has_line(keyboard: TextIO) -> bool:
    """Wait a moment for a line.

    Waiting in `readline` would hold the lock of stdin, on which the interpreter then dies at its end; and nobody could
    take the question back. Windows cannot wait for a terminal otherwise.
    """
    return os.name != "posix" or bool(select.select([keyboard], [], [], _LOOK_S)[0])


def _paragraphs(text: str) -> Iterator[str]:
    """Join the lines that an author has wrapped. An indented line or a list item starts a new one."""
    paragraph = ""
    for line in text.splitlines():
        goes_on = (
            paragraph and line and line[0].isalnum() and not re.match(r"\d+[.)] ", line)
        )
        if goes_on:
            paragraph += f" {line}"
            continue
        if paragraph:
            yield paragraph
        paragraph = line
        if not line:
            yield ""
    if paragraph:
        yield paragraph


def _room(screen: TextIO) -> int:
    """Return the columns available after the indent; 0 if nothing is wrapped."""
    try:
        columns = os.get_terminal_size(screen.fileno()).columns
    except (OSError, ValueError):  # no terminal, or no file at all
        columns = 0
    if columns > 2 * len(_INDENT):
        return columns - len(_INDENT)
    return 0


def _wrap_prose(line: str, screen: TextIO) -> list[str]:
    """Break a line of prose at its spaces to fit the screen; nothing else changes."""
    room = _room(screen)
    rows: list[str] = []
    if room:
        rows = wrap(
            line,
            room,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return rows or [line]


def _fold_json(line: str, screen: TextIO) -> Iterator[str]:
    """Break a line of JSON at the screen's edge without losing a character; indent continuations by two more."""
    room = _room(screen)
    row = ""
    inset = " " * (len(line) - len(line.lstrip()) + 2)
    for char in line:
        if room and _cells(row) + _cells(char) > room and row.strip():
            yield row
            row = inset
        row += char
    yield row


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def edit_in(editor: str, text: str) -> str:
    """Return the text as the person left it in their editor.

    Raises:
        OSError: The editor cannot be started, or ended in failure.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "arguments.json")
        file.write_text(text + "\n", encoding="utf-8")
        process = subprocess.run([*shlex.split(editor), str(file)], check=False)
        if process.returncode:  # the editor was left without saving, as by `:cq`
            raise OSError(f"the editor ended with {process.returncode}")
        return file.read_text(encoding="utf-8")


def _login_name() -> str:
    try:
        name = getpass.getuser()
        check_person("the login name", name)
    except (OSError, KeyError, ImportError, ConfigError):
        # no name for this user, as in some containers
        return f"user {os.getuid()}" if hasattr(os, "getuid") else ""
    return name
