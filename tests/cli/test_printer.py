"""How a timeline looks: widths, marks, colours, and what no model may do to a terminal."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from handrail.calls import ToolCall, ToolResult
from handrail.cli.printer import Flow, Printer, console, print_columns, print_entry
from handrail.cli.timeline import Line, Piece, Timeline
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    CallFinished,
    ModelAnswered,
    ModelAsked,
    RunStarted,
    Streamed,
)
from handrail.messages import TextDelta, Turn
from handrail.testing import ManualClock

CALL = ToolCall("c1", "get_order", '{"order_id": "A-1"}')


@pytest.fixture
def screen():
    return io.StringIO()


@pytest.fixture
def printer(screen):
    return Printer(
        Timeline(streams=True),
        Console(file=screen, width=60, highlight=False),
        now=ManualClock(),
    )


def test_a_line_has_its_seconds_its_mark_and_its_words(printer, screen):
    printer.now.advance(1.25)
    printer.show(Line("call", '{"a": 1}', "get_order"))
    assert screen.getvalue() == '   1.2 → get_order  {"a": 1}\n'


def test_the_clock_starts_with_each_run(printer, screen):
    printer.now.advance(60)
    printer(RunStarted("r_1"))
    printer(CallFinished(CALL, ToolResult("c1", text="paid"), 0))
    assert screen.getvalue().startswith("   0.0 ✓ ")


@pytest.mark.parametrize(("line", "rows"), [
    (Line("call", "x" * 100, "f"), 1),                             # cut at the edge
    # wrapped, because it must be read
    (Line("refused", "word " * 30, "f", whole=True), 4),
    # wide characters count twice
    (Line("result", "订单" * 60, "f"), 1),
])  # fmt: skip
def test_no_line_is_wider_than_the_terminal(printer, screen, line, rows):
    printer.show(line)
    lines = screen.getvalue().splitlines()
    assert len(lines) == rows
    assert all(cell_len(each) <= 60 for each in lines)
    assert all(each.startswith(" " * 9) for each in lines[1:])
    assert not any(each != each.rstrip() for each in lines)


def test_words_that_have_no_room_beside_the_other_columns_stand_below_them(screen):
    rows = [
        ("refund", "x" * 40, "one two three four five"),
        ("refund", "y" * 40, "short"),
    ]
    print_columns(Console(file=screen, width=60, highlight=False), rows)
    assert screen.getvalue().splitlines() == [
        f"refund  {'x' * 40}", "    one two three four five", f"refund  {'y' * 40}  short",
    ]  # fmt: skip


def test_a_caption_stands_beside_the_number_of_its_turn(printer, screen):
    printer.captions = {1: "Watch this."}
    printer(ModelAsked(1, 1, 1))
    printer(ModelAsked(2, 1, 1))
    assert screen.getvalue() == "\n  turn 1 Watch this.\n\n  turn 2\n"


def test_streamed_text_and_lines_do_not_run_into_each_other(printer, screen):
    printer(Streamed(TextDelta("Let me")))
    printer(Streamed(TextDelta(" see.")))
    printer(ModelAnswered(1, Turn("Let me see.", calls=[CALL])))
    assert (
        screen.getvalue() == '\nLet me see.\n   0.0 → get_order  {"order_id": "A-1"}\n'
    )


def test_nothing_is_printed_into_the_answer_of_a_person(printer, screen):
    other = ToolCall("c2", "note", "{}")
    printer(ApprovalAsked(CALL, {}, "high", "risk"))
    before = screen.getvalue()
    printer(CallFinished(other, ToolResult("c2", text="noted"), 0))
    assert screen.getvalue() == before
    printer(ApprovalGiven(CALL, None))
    assert screen.getvalue().index("noted") < screen.getvalue().index("nobody is there")


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_without_a_reader_a_run_goes_on_in_silence(screen):
    printer = Printer(Timeline(), console(Gone()), now=ManualClock())
    printer(ModelAsked(1, 1, 1))
    printer(ModelAsked(2, 1, 1))
    printer.close()
    assert printer.console.quiet


def test_a_question_that_was_cancelled_holds_nothing_back(printer, screen):
    printer(ApprovalAsked(CALL, {}, "high", "risk"))
    printer(CallFinished(CALL, ToolResult("c1", text="cancelled"), 0))
    assert "cancelled" in screen.getvalue()


@pytest.mark.parametrize("show", [
    lambda printer: printer.show(Line("result", "\x1b[2Jgone\x07", "f")),
    lambda printer: printer.show(Line("wire", "\x9b2Jgone", whole=True)),
    lambda printer: printer.show(Piece("\x1b]0;title\x07")),
    lambda printer: printer.say("\x1bc"),
    lambda printer: printer.question("\u202egone"),
    lambda printer: print_columns(printer.console, [["\x1b[1A", "x"]]),
    lambda printer: printer.show(Line("result", "[bold]no markup[/bold] :smile:", "f")),
])  # fmt: skip
def test_nothing_that_a_model_or_a_tool_wrote_can_steer_the_terminal(
    printer, screen, show
):
    show(printer)
    printer.close()
    shown = screen.getvalue()
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "[bold]" in shown or "no markup" not in shown


class Tty(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("file", "environment", "colours"), [
    (io.StringIO, {}, False),                                # a pipe
    (Tty, {"TERM": "xterm-256color"}, True),
    (Tty, {"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
    (Tty, {"TERM": "dumb"}, False),
    (io.StringIO, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, True),
])  # fmt: skip
def test_colour_is_for_terminals_and_for_those_who_ask(
    monkeypatch, file, environment, colours
):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    target = file()
    Printer(Timeline(), console(target)).show(Line("failed", "no", "f"))
    assert ("\x1b[" in target.getvalue()) == colours or "31m" not in target.getvalue()
    assert ("31m" in target.getvalue()) == colours


LONG = " ".join(["word"] * 500)

PRINTED = [
    lambda printer: printer.show(Line("refused", LONG, "f", whole=True)),
    lambda printer: printer.show(Line("result", LONG, "f")),
    lambda printer: printer.say(LONG),
    lambda printer: printer.question(LONG),
    lambda printer: print_columns(printer.console, [["a path", LONG]]),
    lambda printer: print_entry(printer.console, "an entry", LONG),
]


@pytest.mark.parametrize("show", PRINTED)
def test_what_goes_into_a_file_is_neither_wrapped_nor_cut(monkeypatch, screen, show):
    monkeypatch.delenv("COLUMNS", raising=False)
    show(Printer(Timeline(), console(screen), now=ManualClock()))
    assert any(LONG in line for line in screen.getvalue().splitlines())


@pytest.mark.parametrize("show", PRINTED)
def test_columns_say_how_wide_a_file_is(monkeypatch, screen, show):
    monkeypatch.setenv("COLUMNS", "50")
    show(Printer(Timeline(), console(screen), now=ManualClock()))
    assert all(cell_len(line) <= 50 for line in screen.getvalue().splitlines())


def flowed(pieces, width=20, indent="  "):
    flow = Flow(width, indent)
    return "".join(map(flow.feed, pieces)) + flow.close()


@pytest.mark.parametrize(("text", "lines"), [
    ("short", ["  short"]),
    ("one two three four five six", ["  one two three four", "  five six"]),
    ("first\n\nsecond", ["  first", "", "  second"]),
    ("北京今天二十一度天气很好", ["  北京今天二十一度天", "  气很好"]),  # two columns each; between any two
    # a word longer than the line is left whole
    ("a" * 30, ["  " + "a" * 30]),
    ("", [""]),
])  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_text_is_broken_alike_however_it_is_cut(text, lines, size):
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert [line.rstrip() for line in flowed(pieces).split("\n")] == lines


def test_a_text_without_a_width_is_left_as_it_is():
    assert flowed(["a" * 200, "\nb"], width=None) == "a" * 200 + "\nb"


def test_a_name_with_a_line_feed_makes_no_row(screen):
    target = Console(file=screen, width=60, highlight=False)
    print_columns(target, [("a\nb  done", "1"), ("c", "2")])
    assert screen.getvalue().splitlines() == ["a\\x0ab  done  1", "c             2"]


def test_columns_line_up_for_wide_characters_and_wrap_in_the_last():
    screen = io.StringIO()
    print_columns(
        Console(file=screen, width=30),
        [["北京", "x", "one two three four five six"], ["a", "y", "z"]],
    )
    assert screen.getvalue().splitlines() == [
        "北京  x  one two three four",
        "         five six",
        "a     y  z",
    ]


def test_a_table_in_a_file_is_as_wide_as_a_screen(monkeypatch, screen):
    monkeypatch.delenv("COLUMNS", raising=False)
    console(screen).print(Table("a", "b", expand=True))
    console(screen).rule("c")
    assert {cell_len(line) for line in screen.getvalue().splitlines()} == {120}
