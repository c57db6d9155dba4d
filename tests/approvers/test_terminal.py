"""A person at a terminal is asked whether a call may run."""

import asyncio
import io
import sys
import termios
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

import handrail as hr
from handrail.approvers.terminal import TerminalApprover, printable
from handrail.records import ApprovalRequest
from tests.support.terminals import terminal


def asked(name="delete_order", **arguments):
    call = hr.ToolCall("call_1", name, "{}")
    return hr.AskHuman(
        call,
        arguments,
        "high",
        f"{name} has high risk",
        "Delete an order.\nIt cannot be undone.",
    )


@pytest.fixture
def desk():
    """A terminal with its person, and an approver that asks there."""
    with terminal() as (person, keyboard, screen), ThreadPoolExecutor(4) as threads:

        class Desk:
            approver = TerminalApprover(
                input=keyboard, output=screen, by="ada", editor=""
            )

            def ask(self, question):
                return threads.submit(self.approver, question)

        desk = Desk()
        desk.person = person
        yield desk
        desk.approver.leave()


PROMPT = r"\(a\)pprove, \(d\)eny, \(e\)dit\? "


def test_the_call_is_shown_whole_before_the_question(desk):
    answer = desk.ask(asked(order_id="订单 1", lines=[1, 2]))
    shown = desk.person.reads_until(PROMPT)
    for part in (
        "delete_order wants to run",
        "Risk: high",
        "It cannot be undone.",
        '"order_id": "订单 1"',
        "has high risk",
    ):
        assert part in shown
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada")


@pytest.mark.parametrize("columns", [40, 0])
def test_prose_is_parted_at_its_spaces_where_the_terminal_is_narrow(desk, columns):
    termios.tcsetwinsize(desk.approver._output.fileno(), (24, columns))
    call = hr.ToolCall("call_1", "delete_order", "{}")
    desk.ask(
        hr.AskHuman(
            call, {}, "high", "", "Delete an order for good, with all that it holds."
        )
    )
    shown = desk.person.reads_until(PROMPT)
    assert ("for good, with\n         all that" in shown) == (columns == 40)


def test_prose_that_its_author_has_wrapped_is_wrapped_once(desk):
    termios.tcsetwinsize(desk.approver._output.fileno(), (24, 60))
    prose = "Delete an order for good, with all that it holds, and\ntell its customer.\n\n- not paid back\n- not undone"
    desk.ask(
        hr.AskHuman(hr.ToolCall("call_1", "delete_order", "{}"), {}, "high", "", prose)
    )
    shown = [line.strip() for line in desk.person.reads_until(PROMPT).splitlines()]
    assert "Delete an order for good, with all that it holds," in shown
    assert "and tell its customer." in shown
    assert shown.index("- not undone") == shown.index("- not paid back") + 1


@pytest.mark.parametrize("text", ["word  " * 30, "订单" * 40])
def test_arguments_keep_to_their_indent_and_lose_no_character(desk, text):
    termios.tcsetwinsize(desk.approver._output.fileno(), (24, 60))
    desk.ask(asked(note=text))
    rows = desk.person.reads_until(PROMPT).splitlines()
    first = next(number for number, row in enumerate(rows) if '"note"' in row)
    last = next(
        number
        for number, row in enumerate(rows)
        if number > first and row.strip() == "}"
    )
    assert all(row.startswith(" " * 9) for row in rows[first:last])
    assert all(cell_len(row) <= 60 for row in rows[first:last])
    assert (
        rows[first].strip() + "".join(row[13:] for row in rows[first + 1 : last])
        == f'"note": "{text}"'
    )


@pytest.mark.parametrize("word", ["a", "y", "approve", " YES "])
def test_a_clear_word_approves(desk, word):
    answer = desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.person.types(f"{word}\n")
    assert answer.result(30).granted


def test_a_denial_takes_a_reason(desk):
    answer = desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.person.types("d\nfirst ask Grace\n")
    assert answer.result(30) == hr.Approval(False, "ada", "first ask Grace")


@pytest.mark.parametrize("unclear", ["", "x", "aprove", "yn"])
def test_an_unclear_word_is_asked_again(desk, unclear):
    answer = desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.person.types(f"{unclear}\n")
    desk.person.reads_until(f"Answer a, d or e.*{PROMPT}")
    desk.person.types("n\n\n")
    assert answer.result(30) == hr.Approval(False, "ada")


BACKSPACE, WHOLE_LINE = "\x7f", "\x15"  # as the keys send it: the second is Ctrl-U
FILLED_IN = r'Arguments as JSON: { "amount": 500 }'


def test_arguments_are_edited_in_a_line_that_is_filled_in_already(desk):
    answer = desk.ask(asked(amount=500))
    desk.person.reads_until(PROMPT)
    desk.person.types("e\n")
    desk.person.reads_until(FILLED_IN)
    desk.person.types(f"{BACKSPACE * 4}7 }}\n")
    # shown again before it is approved
    desk.person.reads_until(f'"amount": 57\n.*{PROMPT}')
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada", "", {"amount": 57})


PARAMETERS = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 100}},
    "required": ["amount"],
}


def test_an_edit_that_does_not_fit_the_tool_is_refused_at_once_and_can_be_edited_further(
    desk,
):
    answer = desk.ask(replace(asked(amount=500), parameters=PARAMETERS))
    desk.person.reads_until(PROMPT)
    desk.person.types("e\n")
    desk.person.reads_until(FILLED_IN)
    desk.person.types(f'{WHOLE_LINE}{{"amount": 999}}\n')
    desk.person.reads_until(
        f"Nothing was changed: `amount` must be at most 100.*{PROMPT}"
    )
    desk.person.types("e\n")
    desk.person.reads_until('Arguments as JSON: {"amount": 999}')
    desk.person.types(f"{BACKSPACE * 2}}}\n")
    desk.person.reads_until(f'"amount": 99\n.*{PROMPT}')
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada", "", {"amount": 99})


def test_a_question_is_taken_back_also_while_somebody_edits(desk):
    question = asked(amount=500)
    before = termios.tcgetattr(desk.approver._input)
    answer = desk.ask(question)
    desk.person.reads_until(PROMPT)
    desk.person.types("e\n")
    desk.person.reads_until(FILLED_IN)
    assert termios.tcgetattr(desk.approver._input) != before
    desk.approver.leave()
    assert answer.result(30) is None
    # the terminal is left as it was found
    assert termios.tcgetattr(desk.approver._input) == before


@pytest.mark.parametrize(("typed", "says"), [
    ('{"amount": ', "Nothing was changed: "),
    ("[5]", "arguments are a JSON object"),
])  # fmt: skip
def test_an_edit_that_is_no_object_changes_nothing(desk, typed, says):
    answer = desk.ask(asked(amount=500))
    desk.person.reads_until(PROMPT)
    desk.person.types("e\n")
    desk.person.reads_until(FILLED_IN)
    desk.person.types(f"{WHOLE_LINE}{typed}\n")
    desk.person.reads_until(f"{says}.*{PROMPT}")
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada")


@pytest.mark.parametrize(("program", "arguments"), [
    ("p = sys.argv[1]; open(p, 'w').write('{\"amount\": 5}')", {"amount": 5}),
    ("pass", None),         # closed without a change
    ("sys.exit(1)", None),  # left in failure, as by `:cq`
])  # fmt: skip
def test_arguments_can_be_edited_in_an_editor(desk, tmp_path, program, arguments):
    script = tmp_path / "editor.py"
    script.write_text(f"import sys\n{program}\n")
    desk.approver.editor = f"{sys.executable} {script}"
    answer = desk.ask(asked(amount=500))
    desk.person.reads_until(PROMPT)
    desk.person.types("e\n")
    desk.person.reads_until(PROMPT)
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada", "", arguments)


def test_an_editor_that_is_not_there_changes_nothing(desk):
    desk.approver.editor = "no-such-editor-anywhere"
    answer = desk.ask(asked(amount=500))
    desk.person.reads_until(PROMPT)
    desk.person.types("e\n")
    desk.person.reads_until(f"Nothing was changed: .*{PROMPT}")
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada")


# What a model would write to paint over the question or to make one argument look like another.
@pytest.mark.parametrize(("text", "shown"), [
    ("\x1b[2K\x1b[1Arm", r"\u001b[2K\u001b[1Arm"),      # erase the line, go up
    ("a\rb\nc\x08", r"a\rb\nc\b"),
    # DEL, and the one-byte CSI of C1
    ("\x7f\x9b31m", r"\u007f\u009b31m"),
    ("exe.\u202etxt", r"exe.\u202etxt"),                # right-to-left override
    ("pay\u200bpal", r"pay\u200bpal"),                  # zero width
    ("one\u2028two", r"one\u2028two"),                  # ends a line in some terminals
    # Hangul filler: a letter of which nothing is shown
    ("bob\u3164@acme", r"bob\u3164@acme"),
    ("bob\u2800@acme", r"bob\u2800@acme"),              # a Braille pattern without dots
    # combining, and shown as nothing
    ("bob\u034f@acme", r"bob\u034f@acme"),
    ("bob\u17b4@acme", r"bob\u17b4@acme"),
    ("bob\u180b@acme", r"bob\u180b@acme"),
    ("bob\ufe01@acme", r"bob\ufe01@acme"),              # variation selectors
    ("bob\ufe0f@acme", r"bob\ufe0f@acme"),
    # strikes the letter before it through
    ("bob\u0338@acme", r"bob\u0338@acme"),
    ("bob\u00a0@acme", r"bob\u00a0@acme"),              # a space that is none
    # private use: whatever the font has
    ("bob\ue000@acme", r"bob\ue000@acme"),
])  # fmt: skip
def test_nothing_in_the_arguments_can_paint_the_terminal(desk, text, shown):
    answer = desk.ask(asked(path=text))
    screen = desk.person.reads_until(PROMPT)
    assert f'"path": "{shown}"' in screen
    assert all(char.isprintable() or char == "\n" for char in screen)
    desk.person.types("d\n\n")
    answer.result(30)


def test_of_long_arguments_both_ends_are_shown_and_the_destination_stands_next_to_the_question(
    desk,
):
    texts = [f"row {n}" for n in range(10_000)]
    answer = desk.ask(
        asked(
            to="evil@x.example",
            text="begin " + "line " * 20_000 + "end",
            rows=texts,
            copies=[],
        )
    )
    shown = desk.person.reads_until(PROMPT)
    assert shown.count("\n") < 60
    assert '"begin line line' in shown
    assert 'line end"' in shown
    assert "... 99,009 more characters ..." in shown
    assert "... 9,965 more ..." in shown
    assert '"row 9999"' in shown
    assert (
        shown.index("has high risk")
        < shown.index('"text"')
        < shown.index('"to": "evil@x.example"\n         }')
    )
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada")


@pytest.mark.parametrize(("text", "said"), [
    ("p\u0430ypal.example", "Cyrillic and Latin"),
    ("send it to bob@g\u03bfogle.example", "Greek and Latin"),
    ("北京API for Zürich and Київ", ""),
])  # fmt: skip
def test_a_word_of_letters_that_look_alike_is_pointed_out(desk, text, said):
    answer = desk.ask(asked(to=text))
    shown = desk.person.reads_until(PROMPT)
    assert ("Look twice" in shown) == bool(said)
    assert said in shown
    desk.person.types("d\n\n")
    answer.result(30)


def test_neither_can_the_tools_name_or_the_reason(desk):
    answer = desk.ask(
        hr.AskHuman(
            hr.ToolCall("1", "x\x1b[2J", ""),
            {},
            "high",
            "because\x1b]0;\x07",
            "say\x1bc",
        )
    )
    screen = desk.person.reads_until(PROMPT)
    assert all(char.isprintable() or char == "\n" for char in screen)
    desk.person.types("d\n\n")
    answer.result(30)


def test_parallel_questions_come_one_after_another(desk):
    answers = [desk.ask(asked(f"tool_{number}")) for number in range(3)]
    for _ in answers:
        shown = desk.person.reads_until(PROMPT)
        assert shown.count("wants to run") == 1
        desk.person.types("a\n")
    assert all(answer.result(30).granted for answer in answers)


def test_what_was_typed_before_a_question_is_shown_does_not_answer_it(desk):
    first, second = desk.ask(asked(order_id="1")), desk.ask(asked(order_id="2"))
    desk.person.reads_until(PROMPT)
    desk.person.types("a\na\na\n")  # somebody is impatient
    desk.person.reads_until(PROMPT)
    desk.person.types("d\n\n")
    assert [first.result(30).granted, second.result(30).granted].count(True) == 1


def test_the_end_of_the_terminals_input_is_no_answer(desk):
    answer = desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.person.types("\x04")  # Ctrl-D
    assert answer.result(30) is None


def test_a_question_that_was_left_is_taken_back_and_the_next_one_is_asked(desk):
    left, waiting = desk.ask(asked()), desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.approver.leave()
    assert left.result(30) is None
    assert waiting.result(30) is None
    later = desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.person.types("a\n")
    assert later.result(30).granted


def test_a_question_that_was_answered_elsewhere_makes_room_and_one_in_line_is_never_shown(
    desk,
):
    first, second, third = asked(order_id="1"), asked(order_id="2"), asked(order_id="3")
    answers = [desk.ask(first)]
    desk.person.reads_until(PROMPT)
    answers += [desk.ask(second), desk.ask(third)]
    taken = ApprovalRequest(
        "a_1",
        "r_1",
        "call_1",
        "delete_order",
        "",
        {},
        "high",
        "",
        state="approved",
        by="ann\x1b[2K",
    )
    desk.approver.withdraw(second, taken)
    desk.approver.withdraw(first, taken)
    assert answers[0].result(30) is None
    shown = desk.person.reads_until(PROMPT)
    assert "taken back: it is approved by ann\\x1b[2K" in shown
    assert '"order_id": "2"' not in shown
    desk.person.types("a\n")
    assert answers[2].result(30).granted
    # perhaps only now: whose turn comes first is the system's to say
    assert answers[1].result(30) is None


# a pipe that says yes is no person; closed by the shell
@pytest.mark.parametrize("stdin", [io.StringIO("a\n"), None])
def test_without_a_terminal_nobody_is_there(monkeypatch, stdin):
    monkeypatch.setattr(sys, "stdin", stdin)
    approver = TerminalApprover(output=io.StringIO())
    assert not approver.is_there
    assert approver(asked()) is None


async def deleted_by(approver):
    @hr.tool(effect="destructive")
    def delete_order(order_id: str) -> str:
        """Delete an order."""
        return f"deleted {order_id}"

    async with hr.Runtime([delete_order], approver=approver) as runtime:
        return await runtime.call("delete_order", {"order_id": "A-1"})


def test_it_is_an_approver_of_a_runtime(desk):
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(asyncio.run, deleted_by(desk.approver))
        desk.person.reads_until(PROMPT)
        desk.person.types("e\n")
        desk.person.reads_until('Arguments as JSON: { ?"order_id": "A-1" ?}')
        desk.person.types(f'{WHOLE_LINE}{{"order_id": "B-2"}}\n')
        desk.person.reads_until(PROMPT)
        desk.person.types("a\n")
        assert result.result(30).value == "deleted B-2"


@pytest.mark.parametrize(("text", "shown"), [
    ("plain", "plain"),
    ("北京 21 °C", "北京 21 °C"),
    ("a\nb\tc", "a\nb\tc"),        # kept when asked for
    ("a\x00", "a\\x00"),
    ("done ✔\ufe0f, 1\u00a0kg", "done ✔\ufe0f, 1\u00a0kg"),
    ("a\u3164b\u0338", "a\\u3164b\\u0338"),
    ("\ud800", "\\ud800"),         # half a surrogate pair, which no terminal can show
    ("\U000e0041", "\\U000e0041"), # an invisible tag character
])  # fmt: skip
def test_text_is_shown_as_it_is_and_the_rest_escaped(text, shown):
    assert printable(text, keep="\n\t") == shown


# -- several people ----------------------------------------------------------------------------------------------------


def of_two(*agreed, principal=""):
    return replace(asked(), required_approvals=2, agreed=agreed, principal=principal)


NAMED = r"Your name \(ada\): "


@pytest.mark.parametrize(("typed", "name"), [("", "ada"), ("grace", "grace")])
def test_each_of_several_is_asked_for_a_name_and_is_the_user_of_the_terminal_unless_told(
    desk, typed, name
):
    answer = desk.ask(of_two())
    assert "2 people must agree" in desk.person.reads_until(r"\(l\)eave it open\? ")
    desk.person.types("a\n")
    desk.person.reads_until(NAMED)
    desk.person.types(f"{typed}\n")
    assert answer.result(30) == hr.Approval(True, name)


def test_who_has_agreed_is_shown_and_a_name_that_does_not_count_is_told(desk):
    answer = desk.ask(of_two("ada", principal="grace"))
    shown = desk.person.reads_until(r"\(l\)eave it open")
    assert "; ada did; not grace, whom the run acts for." in shown
    for name, why in (
        ("Ada", "Ada has agreed already"),
        ("grace", "whom the run acts for"),
        ("", "whose it is"),
    ):
        desk.person.types("a\n")
        desk.person.reads_until("Your name: ")
        desk.person.types(f"{name}\n")
        desk.person.reads_until(why)
    desk.person.types("a\nlin\n")
    assert answer.result(30) == hr.Approval(True, "lin")


def test_whom_a_call_is_for_is_told_who_may_approve_it_and_how_to_permit_their_own(
    desk,
):
    answer = desk.ask(replace(asked(), principal="Ada"))
    shown = desk.person.reads_until(r"\(l\)eave it open\? ")
    said = " ".join(shown.split())
    assert "ada is whom the run acts for, and somebody else must agree" in said
    assert "`own_approval` of the policy" in said
    for name in ("ada", ""):
        desk.person.types("a\n")
        desk.person.reads_until("Your name: ")
        desk.person.types(f"{name}\n")
        desk.person.reads_until("does not count")
    desk.person.types("a\nlin\n")
    assert answer.result(30) == hr.Approval(True, "lin")


def test_whom_a_call_is_for_approves_it_where_the_policy_permits_it(desk):
    answer = desk.ask(replace(asked(), principal="ada", own_approval=True))
    desk.person.reads_until(r"\(e\)dit\? ")
    desk.person.types("a\n")
    assert answer.result(30) == hr.Approval(True, "ada")


def test_several_edit_nothing_and_one_who_is_alone_leaves_it_open(desk):
    answer = desk.ask(of_two())
    desk.person.reads_until(r"\(l\)eave it open\? ")
    desk.person.types("e\n")
    desk.person.reads_until("Answer a, d or l.")
    desk.person.types("l\n")
    assert answer.result(30) is None


def test_one_person_cannot_leave_what_is_asked_of_one(desk):
    answer = desk.ask(asked())
    desk.person.reads_until(PROMPT)
    desk.person.types("l\n")
    desk.person.reads_until("Answer a, d or e.")
    desk.person.types("d\n\n")
    assert not answer.result(30).granted
