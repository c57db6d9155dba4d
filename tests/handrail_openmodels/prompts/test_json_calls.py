"""What stands beside the arguments of a call in JSON: nothing of it is dropped, and no call runs without it."""

import json

import pytest

from handrail.calls import ToolCall
from handrail.errors import Failure
from handrail.parsing import jsontext
from handrail.ports import Described
from handrail_openmodels.prompts import reader as texts
from handrail_openmodels.prompts.json_calls import JsonCalls
from tests.handrail_openmodels.prompts.test_reader import FAMILIES, SYNTAXES

TOOLS = [
    Described(
        name,
        "",
        {"type": "object", "properties": {"path": {"type": "string"}, **more}},
    )
    for name, more in (("wipe", {}), ("think", {"thought": {"type": "string"}}))
]
PLACES = ("first", "before the arguments", "behind the arguments", "last")
CASES = [
    pytest.param(name, call_format, where, id=f"{name}-{number}-{where}")
    for name in sorted(FAMILIES.values())
    for number, call_format in enumerate(SYNTAXES[name].formats)
    if isinstance(call_format, JsonCalls)
    for where in PLACES
    # where the name is the first key, what stands before the arguments is the call
    if not (call_format.by_name and where in PLACES[:2])
]
IN_LISTS = [
    case
    for case in CASES
    if not (case.values[1].by_name or case.values[1].exact)  # type: ignore[attr-defined]
]
NO_PART = [
    '"note": "left7"',
    '"force": [true, "left7"]',
    '"options": {"deep": {"left7": null}}',
    '"left7": true',
    '"left7": null',
    '"left7": 0',
    '"type": "left7"',
    '"left7": True',
    '"type": ["left7"]',
    '"type": {"left7": 1}',
    '"thought": ["left7"]',
    '"thought": "\\ud83d left7"',
    '"id": "\\ud83d left7"',
    '"arguments_2": {"path": "left7"}',
    '"note": "a } and a \\" left7"',
    '"id": {"left7": 1}',
]
"""Members that are no part of a call, each with one word."""


def feed(name, pieces):
    reader = texts.make_reader(SYNTAXES[name], TOOLS)
    for piece in pieces:
        reader.feed(piece)
    return reader.close()


def read(name, text):
    """Return the turn of a text, which is the same whole and one character at a time."""
    turn = feed(name, [text])
    assert feed(name, list(text)) == turn
    return turn


def write(call_format, member, place, *names):
    """Return calls of these tools, the first with one more member."""
    calls = [ToolCall(f"call{at:05}", name, '{"path": "/t"}') for at, name in enumerate(names)]  # fmt: skip
    written = call_format.encode(calls, {})
    arguments = next(
        lead + '{"path": "/t"}'
        for lead in (*(f'"{key}": ' for key in call_format.arguments), '"wipe": ', '"think": ')
        if lead + '{"path": "/t"}' in written
    )  # fmt: skip
    at = written.index(arguments)
    opens = written.rindex("{", 0, at + 1)
    closes = written.index("}", at + len(arguments))
    match place:
        case "first":
            return f"{written[: opens + 1]}{member}, {written[opens + 1 :]}"
        case "before the arguments":
            return f"{written[:at]}{member}, {written[at:]}"
        case "behind the arguments":
            end = at + len(arguments)
            return f"{written[:end]}, {member}{written[end:]}"
        case _:
            return f"{written[:closes]}, {member}{written[closes:]}"


def runs(turn):
    """Return the names and arguments of those calls that a tool would run with, a tool that only reads included."""
    read = [(call.name, jsontext.parse(call.arguments, turn.finish)) for call in turn.calls]  # fmt: skip
    return [(name, each.value) for name, each in read if isinstance(each, jsontext.Parsed)]  # fmt: skip


@pytest.mark.parametrize(("name", "call_format", "place"), CASES)
def test_a_member_that_is_no_part_of_a_call_is_kept_and_the_call_does_not_run(
    name, call_format, place
):
    for member in NO_PART:
        turn = read(name, write(call_format, member, place, "wipe"))
        assert runs(turn) == []
        told = [call.arguments for call in turn.calls if "left7" in call.arguments]
        assert told or "left7" in turn.text
        for arguments in told:
            failure = jsontext.parse(arguments, turn.finish)
            assert isinstance(failure, Failure)
            assert failure.message


@pytest.mark.parametrize("name", ["mistral", "mistral-v11"])
def test_a_list_is_read_where_the_family_writes_names_with_marks_behind_the_same_mark(
    name,
):
    text = '[TOOL_CALLS] [{"name": "wipe", "arguments": {"path": "/t"}, "id": "abcdefghi"}]'
    turn = read(name, text)
    assert runs(turn) == [("wipe", {"path": "/t"})]
    assert turn.calls[0].id == "abcdefghi"


@pytest.mark.parametrize(("name", "call_format", "place"), IN_LISTS)
def test_the_next_call_runs_behind_one_with_a_member_too_many(name, call_format, place):
    text = write(call_format, '"note": "left7"', place, "wipe", "think")
    turn = read(name, text)
    assert [call.name for call in turn.calls] == ["wipe", "think"]
    assert runs(turn) == [("think", {"path": "/t"})]


@pytest.mark.parametrize("key", ["thought", "thoughts", "thinking", "reasoning"])
@pytest.mark.parametrize(("name", "call_format", "place"), CASES)
def test_what_a_model_thinks_within_a_call_is_reasoning(name, call_format, place, key):
    member = f'"{key}": "It is \\u6162, left7.\\n"'
    turn = read(name, write(call_format, member, place, "wipe"))
    if turn.calls:
        assert turn.reasoning == "It is 慢, left7."
        assert runs(turn) == [("wipe", {"path": "/t"})]
    else:
        assert call_format.exact
        assert "left7" in turn.text


@pytest.mark.parametrize(("name", "call_format", "place"), CASES)
def test_a_thought_that_is_a_parameter_of_the_tool_is_no_reasoning(
    name, call_format, place
):
    turn = read(name, write(call_format, '"thought": "left7"', place, "think"))
    assert (runs(turn), turn.reasoning) == ([], "")
    assert "left7" in turn.text + "".join(call.arguments for call in turn.calls)


def test_a_thought_alone_leaves_a_call_without_arguments_one():
    text = '<tool_call>{"name": "wipe", "thought": "All of it."}</tool_call>'
    turn = read("hermes", text)
    assert runs(turn) == [("wipe", {})]
    assert turn.reasoning == "All of it."
    assert read("hermes", text.replace("wipe", "think")).text == text.replace("wipe", "think")  # fmt: skip


def test_thoughts_follow_what_was_thought_before_and_stay_in_the_text_where_reasoning_does():
    text = '<think>\nHm.\n</think>\n\n<tool_call>{"name": "wipe", "thought": "All.", "arguments": {}}</tool_call>'
    assert read("hermes", text).reasoning == "Hm.\nAll."
    turn = texts.read_answer(SYNTAXES["hermes"], text, TOOLS, reasoning=False)
    assert turn.text == "<think>\nHm.\n</think>\n\nAll."


@pytest.mark.parametrize("other", ['{"left7": 1}', '{"arguments": {"left7": 1}}', '{"left7": }'])  # fmt: skip
@pytest.mark.parametrize(("name", "call_format", "place"), IN_LISTS[:: len(PLACES)])
def test_an_object_behind_a_call_that_is_none_is_kept_as_text(
    name, call_format, place, other
):
    call = write(call_format, '"type": "function"', place, "wipe")
    end = call.rindex("}") + 1
    turn = read(name, f"{call[:end]}, {other}{call[end:]}")
    # what is read whole is all text where a part of it is no JSON
    is_text = call_format.whole and call_format.listed and other == '{"left7": }'
    assert runs(turn) == ([] if is_text else [("wipe", {"path": "/t"})])
    assert "left7" in turn.text


def test_thousands_of_members_beside_the_arguments_are_kept():
    many = ", ".join(['"thought": "x", "k": 1, "type": "y"'] * 2_000)
    text = f'<tool_call>{{"name": "wipe", {many}, "arguments": {{}}}}</tool_call>'
    turn = feed("hermes", [text])
    assert turn.reasoning.split() == ["x"] * 2_000
    assert turn.calls[0].arguments == "{}" + ', "k": 1, "type": "y"' * 2_000


def test_the_model_is_told_where_the_arguments_belong():
    text = '<tool_call>{"name": "wipe", "force": true, "arguments": {"path": "/t"}}</tool_call>'
    [wipe] = read("hermes", text).calls
    failure = jsontext.parse(wipe.arguments)
    assert "a member stands behind the object" in failure.message
    assert "every argument inside the one object" in failure.suggestion


@pytest.mark.parametrize("id", ["7", 7, "call_1"])
def test_the_bookkeeping_of_the_chat_apis_is_a_part_of_a_call(id):
    inner = '"function": {"name": "wipe", "arguments": {"path": "/t"}}'
    text = f'<tool_call>{{"id": {json.dumps(id)}, "type": "function", {inner}}}</tool_call>'
    turn = read("hermes", text)
    assert runs(turn) == [("wipe", {"path": "/t"})]
    assert turn.calls[0].id == str(id)


@pytest.mark.parametrize(("name", "call_format", "place"), CASES)
def test_a_call_with_more_members_that_breaks_off_keeps_what_was_written(
    name, call_format, place
):
    text = write(call_format, '"note": "left7"', place, "wipe")
    for end in range(text.index("left7") + 5, text.rindex("}")):
        turn = read(name, text[:end])
        assert runs(turn) == []
        kept = turn.text + "".join(call.arguments for call in turn.calls)
        assert "left7" in kept, text[:end]
