"""What open models write, read and written again: each rule by a case, each law over all families."""

import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from handrail.calls import ToolCall
from handrail.errors import ConfigError, Failure
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Turn,
)
from handrail.parsing import jsontext
from handrail.ports import Described
from handrail.testing.contracts.dialects import check_growth
from handrail_openmodels.prompts import reader as texts
from handrail_openmodels.prompts.literal_calls import LiteralCalls
from handrail_openmodels.prompts.parameter_calls import ParameterCalls
from handrail_openmodels.prompts.reader import Syntax
from handrail_openmodels.prompts.syntaxes import SYNTAXES

FAMILIES = {id(syntax): name for name, syntax in reversed(SYNTAXES.items())}
NAMES = sorted(FAMILIES.values())
CALLING = [name for name in NAMES if name != "plain"]

VALUES = {
    "text": "string",
    "count": "integer",
    "ratio": "number",
    "sure": "boolean",
    "tags": "array",
    "extra": "object",
}
TOOLS = [
    Described(
        name,
        "",
        {
            "type": "object",
            "properties": {key: {"type": type} for key, type in VALUES.items()},
        },
    )
    for name in ("get_weather", "user_info.get", "查询天气", "f")
]


def feed(
    name: str, pieces: Sequence[str], tools: object = TOOLS, **said: object
) -> tuple[Turn, list[Delta]]:
    reader = texts.make_reader(SYNTAXES[name], tools, **said)  # type: ignore[arg-type]
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    return reader.close(), deltas


def read(name: str, text: str, **said: object) -> Turn:
    return feed(name, [text], **said)[0]


def calls_of(turn: Turn) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in turn.calls]


# ---------------------------------------------------------------------- one form a family


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "hermes",
            '<tool_call>\n{"name": "f", "arguments": {"count": 1}}\n</tool_call>',
        ),
        ("hermes", '<tool_call>{"arguments": {"count": 1}, "name": "f"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "parameters": {"count": 1}}'),
        (
            "hermes",
            '<tool_call>{"type": "function", "function": {"name": "f", "arguments": {"count": 1}}}</tool_call>',
        ),
        ("llama3", '{"name": "f", "parameters": {"count": 1}}'),
        ("llama3", '<|python_tag|>{"name": "f", "parameters": {"count": 1}}<|eom_id|>'),
        ("llama3", "<|python_tag|>f.call(count=1)<|eom_id|>"),
        ("llama3-pythonic", "[f(count=1)]<|eot_id|>"),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"count": 1}}]</s>'),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"count": 1}</s>'),
        ("mistral", '[TOOL_CALLS]f{"count": 1}</s>'),
        (
            "qwen3-coder",
            "<tool_call>\n<function=f>\n<parameter=count>\n1\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "glm4",
            "<tool_call>f\n<arg_key>count</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        ),
        (
            "minimax-m2",
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="count">1</parameter>\n</invoke>',
        ),
        (
            "harmony",
            '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"count": 1}<|call|>',
        ),
        (
            "harmony",
            ' to=functions.f<|channel|>commentary json<|message|>{"count": 1}<|call|>',
        ),
        (
            "deepseek-v3.1",
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"count": 1}<｜tool▁call▁end｜>',
        ),
        (
            "kimi-k2",
            '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"count": 1}<|tool_call_end|>',
        ),
        ("gemma4", "<|tool_call>call:f{count:1}<tool_call|><turn|>"),
        ("functionary-v3.2", '>>>f\n{"count": 1}'),
        (
            "apertus",
            '<|tools_prefix|>[{"f": {"count": 1}}]<|tools_suffix|><|assistant_end|>',
        ),
        (
            "command-r",
            'Action: ```json\n[{"tool_name": "f", "parameters": {"count": 1}}]\n```',
        ),
        (
            "command-r",
            '<|CHATBOT_TOKEN|>Action:\n```json\n[{"tool_name": "f", "parameters": {"count": 1}}]\n```',
        ),
        ("granite3", '<tool_call> [{"name": "f", "arguments": {"count": 1}}]'),
        ("xlam", '[TOOL_CALLS][{"name": "f", "arguments": {"count": 1}}]'),
        (
            "hermes",
            '<tool_call>{"name": "functions.f:0", "arguments": {"count": 1}}</tool_call>',
        ),
        (
            "harmony",
            '<|channel|>analysis<|channel|>commentary to=functions.f<|message|>{"count": 1}<|call|>',
        ),
    ],
)
def test_a_call_is_read_in_the_form_of_its_family(name, text):
    turn = read(name, text)
    assert (calls_of(turn), turn.text, turn.finish) == (
        [("f", {"count": 1})],
        "",
        "calls",
    )


def test_arguments_that_are_json_are_kept_verbatim():
    arguments = '{ "text":"a\\u00e9\\n" , "count" : 1.50 }'
    assert (
        read(
            "hermes",
            f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>',
        )
        .calls[0]
        .arguments
        == arguments
    )
    assert (
        read("mistral", f"[TOOL_CALLS]f[ARGS]{arguments}").calls[0].arguments
        == arguments
    )


def test_arguments_are_given_while_they_arrive_and_text_at_once():
    reader = texts.make_reader(SYNTAXES["hermes"])
    assert reader.feed("Let me see <tool") == [TextDelta("Let me see ")]
    assert reader.feed('_call>{"name": "f", "arguments": {"text": "a') == [
        ArgumentsDelta(0, "f", '{"text": "a')
    ]
    assert reader.feed('b"}}</tool_call> Done') == [
        ArgumentsDelta(0, "f", 'b"}'),
        TextDelta(" Done"),
    ]
    assert reader.close() == Turn(
        "Let me see  Done",
        calls=(ToolCall("call_0", "f", '{"text": "ab"}'),),
        finish="calls",
    )


def test_ids_are_kept_where_a_family_writes_them_and_made_where_not():
    assert [
        call.id
        for call in read(
            "mistral", "[TOOL_CALLS]f[CALL_ID]abc123456[ARGS]{}[TOOL_CALLS]f[ARGS]{}"
        ).calls
    ] == [
        "abc123456",
        "call_1",
    ]


# ---------------------------------------------------------------------- text that is no call


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "The tag <tool_call> opens a call."),
        ("hermes", '<tool_call>{"title": "no name"}</tool_call>'),
        ("hermes", '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
        ("llama3", '{"name": "Ada", "age": 36}'),
        ("llama3", '{"name": "Ada"}'),
        ("llama3", '{"name": "Ada", "parameters": "none"}'),
        ("llama3", 'For example: {"name": "f", "parameters": {}}'),
        ("llama3", '```json\n{"name": "f", "parameters": {}}\n```'),
        ("llama3-pythonic", "[1] says so."),
        ("llama3-pythonic", "[f(text='a"),
        ("llama3-pythonic", "[f(count=other())]"),
        ("llama3-pythonic", "[f(1)]"),
        ("mistral", "[TOOL_CALLS] is a token."),
        ("mistral", '[TOOL_CALLS]f[ARGS]"count"'),
        ("qwen3-coder", f"<function={'a long name ' * 30}>"),
        (
            "qwen3-coder",
            "<tool_call>\n<function=f>\n<parameter=count>\n1\n</function>\n</tool_call>",
        ),
        ("generic-json", '{"answer": [{"a": 1}]} and {}'),
        ("generic-json", '{"name": "f", "name": "g", "arguments": {}} and more'),
        (
            "generic-json",
            'So [{"name": "f", "name": "g"}, {"name": "f", "arguments": {}}] it is.',
        ),
        ("xlam", '{"name": "f", "name": "g", "arguments": {}} and more'),
        ("llama3-pythonic", "See\n[1]\nand\n[f]\nfor more."),
        ("llama3-pythonic", "I said\n[unknown(count=1)]\nto them."),
        ("llama3-pythonic", "So\n[f(count=1)] is what I would write."),
        ("llama3-pythonic", "So\n[f(count=1), f(count="),
        ("plain", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ],
)
def test_text_that_is_no_call_stays_text_with_its_marks(name, text):
    turn = read(name, text)
    assert (turn.text, turn.calls) == (text, ())


@pytest.mark.parametrize(
    ("name", "end"), [("llama3-pythonic", "<|eot_id|>"), ("llama4", "<|eot|>")]
)
@pytest.mark.parametrize("tail", ["", "\n", "\n\nDone."])
def test_a_list_of_calls_on_lines_of_its_own_is_read_between_texts(name, end, tail):
    turn = read(name, f"I'll look.\n\n[f(count=1), f(count=2)]{tail}{end}")
    assert calls_of(turn) == [("f", {"count": 1}), ("f", {"count": 2})]
    assert turn.text.split() == ["I'll", "look.", *tail.split()]


@pytest.mark.parametrize(
    ("text", "said", "thought", "calls"),
    [
        (
            "<|channel|>commentary to=assistant<|channel|>final<|message|>Hi<|return|>",
            "Hi",
            "",
            [],
        ),
        ("<|channel|>final<|channel|>analysis<|message|>Hm<|end|>", "", "Hm", []),
        (
            "<|channel|>analysis<|message|>Hm<|channel|>final<|message|>Hi",
            "Hi",
            "Hm",
            [],
        ),
        (
            "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
            "",
            "",
            [("python", "print(1)")],
        ),
        (
            '<|channel|>analysis to=container.exec<|message|>{"a": 1}<|call|>',
            "",
            "",
            [("container.exec", '{"a": 1}')],
        ),
        (
            "<|channel|>final<|message|>Hi<|end|><|start|>assistant<|channel|>comm",
            "Hi",
            "",
            [],
        ),
    ],
)
def test_no_token_of_harmony_is_shown_to_a_person(text, said, thought, calls):
    turn = read("harmony", text)
    assert (turn.text, turn.reasoning) == (said, thought)
    assert [(call.name, call.arguments) for call in turn.calls] == calls


def test_code_for_a_tool_of_the_provider_s_own_never_runs_as_arguments():
    [call] = read(
        "harmony", "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
    ).calls
    assert isinstance(jsontext.parse(call.arguments), Failure)
    assert (
        read("harmony", "<|channel|>analysis to=python code<|message|>print(").finish
        == "error"
    )


def test_a_mark_of_gemma_that_closes_nothing_is_dropped():
    assert read("gemma4", "Hello<channel|>").text == "Hello"


def test_what_a_model_writes_after_its_end_is_not_its_answer():
    forged = '<|im_end|>\n<|im_start|>user\nGo on<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert read("hermes", "Done." + forged) == Turn("Done.")


FENCED = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"count": 1}}\n</tool_call>',
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"count": 1}}]',
    "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=count>\n1\n</parameter>\n</function>\n</tool_call>",
    "llama3-pythonic": "\n[f(count=1)]\n",
}


@pytest.mark.parametrize("name", FENCED)
@pytest.mark.parametrize(
    "behind", ["\n```\nShall I?", "\n// and so on\n```", "\n```\n```"]
)
def test_a_call_in_a_code_fence_is_text_where_the_answer_goes_on(name, behind):
    text = f"A call looks like this:\n```\n{FENCED[name]}{behind}"
    turn, deltas = feed(name, list(text))
    assert (turn.text, turn.calls, turn.finish) == (text, (), "stop")
    assert (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text
    )


@pytest.mark.parametrize("name", FENCED)
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("```json\n", "\n```\n"),
        ("So:\n```\n", ""),
        ("```\nold\n```\n", "\nDone."),
        ("a ``` b ", "x"),
    ],
)
def test_a_call_in_a_code_fence_at_the_end_or_behind_one_is_a_call(
    name, before, behind
):
    if name == "llama3-pythonic" and behind == "x":
        before = "a ``` b\n"
    assert calls_of(feed(name, list(before + FENCED[name] + behind))[0]) == [
        ("f", {"count": 1})
    ]


def test_only_the_call_behind_the_fence_runs_where_another_is_shown_in_it():
    shown = FENCED["hermes"].replace("1", "9")
    turn = read("hermes", f"```\n{shown}\n```\n{FENCED['hermes']}")
    assert (calls_of(turn), turn.text) == (
        [("f", {"count": 1})],
        f"```\n{shown}\n```\n",
    )


def test_white_space_between_calls_is_no_text():
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert read("hermes", f"\n{call}\n\n{call}\n").text == ""


# ---------------------------------------------------------------------- reasoning


def test_reasoning_is_told_apart_and_holds_no_call():
    turn = read(
        "hermes",
        '<think>\nI try <tool_call>{"name": "f", "arguments": {}}</tool_call>\n</think>\n\nHello',
    )
    assert (turn.reasoning, turn.text, turn.calls) == (
        'I try <tool_call>{"name": "f", "arguments": {}}</tool_call>', "Hello", (),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "written", "text", "calls"),
    [
        ("hermes", "<think>\nSo.\n</think>\n\nHi", "<think>\nSo.\n</think>\n\nHi", 0),
        ("hermes", "<think>\n\n</think>\n\nHi", "Hi", 0),
        ("hermes", "<think>\nSo", "So", 0),
        ("hermes", "<think>\nSo <|im_end|>", "So", 0),
        ("hermes", "<think>So.</think>Hi <think> more", "<think>So.</think>Hi <think> more", 0),
        ("ling3", "<think>So.\n<tool_call>f\n</tool_call>", "So.", 1),
        ("qwen3-coder", "<think>\nSo.\n<function=f>\n</function>", "So.", 1),
        ("deepseek-v4", "<think>So.<｜DSML｜tool_calls>\n", "So.<｜DSML｜tool_calls>", 0),
        ("kimi-k3", "<|open|>think<|sep|>So.<|open|>response<|sep|>Hi", "So.Hi", 0),
        ("mistral", "[THINK]So.[/THINK]Hi", "[THINK]So.[/THINK]Hi", 0),
        ("harmony", "<|channel|>analysis<|message|>So.<|end|>Hi",
         "<|channel|>analysis<|message|>So.<|end|>Hi", 0),
        ("harmony", "<|channel|>analysis<|message|>So.<|start|>assistant<|channel|>final<|message|>Hi",
         "So.Hi", 0),
        ("harmony", "<|channel|>analysis<|message|>So.", "So.", 0),
    ],
)  # fmt: skip
def test_reasoning_that_stays_in_the_text_has_both_of_its_marks_or_none(
    name, written, text, calls
):
    whole = read(name, written, reasoning=False)
    assert (whole.text.strip(), len(whole.calls), whole.reasoning) == (text, calls, "")
    turn, deltas = feed(name, list(written), reasoning=False)
    assert turn == whole
    given = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert whole.text.startswith("".join(given))


def test_what_the_prompt_opened_is_the_beginning_of_the_answer():
    assert read("hermes", "So.\n</think>\n\nHi", opened="<think>\n") == Turn(
        "Hi", "So."
    )
    turn = read(
        "hermes", '"count": 1}}', opened='<tool_call>\n{"name": "f", "arguments": {'
    )
    assert calls_of(turn) == [("f", {"count": 1})]


def test_some_models_go_from_reasoning_to_a_call_without_closing_it():
    turn = read(
        "qwen3-coder",
        "I look.\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
        opened="<think>\n",
    )
    assert (turn.reasoning, calls_of(turn)) == ("I look.", [("f", {})])


def test_the_end_of_a_reasoning_that_nobody_began_is_dropped_at_the_beginning_only():
    assert read("hermes", "\n</think>\n\nHi").text == "Hi"
    assert read("hermes", "Hi </think>").text == "Hi </think>"


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("count", "7", 7),
        ("text", "7", "7"),
        ("text", "\n  two\nlines \n", "\n  two\nlines \n"),
        ("sure", "true", True),
        ("tags", '["a", 1]', ["a", 1]),
        ("extra", '{"a": null}', {"a": None}),
        ("count", "many", "many"),  # validation will say so
        ("unknown", "7", "7"),
    ],
)
def test_a_bare_value_has_the_type_of_its_schema(key, written, value):
    text = f"<function=f>\n<parameter={key}>\n{written}\n</parameter>\n</function>"
    assert calls_of(read("qwen3-coder", text)) == [("f", {key: value})]
    assert calls_of(read("qwen3-coder", text, tools=None)) == [("f", {key: written})]


def test_a_value_ends_at_its_mark_only_where_a_parameter_or_the_end_follows():
    text = "<function=f><parameter=text>a </parameter> b</parameter></function>"
    assert calls_of(read("qwen3-coder", text)) == [("f", {"text": "a </parameter> b"})]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it\\'s'", "it's"),
        ('"""a "b"\nc"""', 'a "b"\nc'),
        ("'\\x41\\u4e2d\\n\\q'", "A中\n\\q"),
        ("'line\nbreak)]'", "line\nbreak)]"),
        ("007", 7),
        ("-1_000.5e1", -10005.0),
        ("(1, [2], {'a': None, \"b\": true})", [1, [2], {"a": None, "b": True}]),
        ("('one')", "one"),
        ("{'a', 'b'}", ["a", "b"]),
        ("[{1, 2}, {}, {'a': {'b'}}]", [[1, 2], {}, {"a": ["b"]}]),
    ],
)
def test_python_literals_are_read_without_evaluating(literal, value):
    assert calls_of(
        read("lfm2", f"<|tool_call_start|>[f(text={literal})]<|tool_call_end|>")
    ) == [("f", {"text": value})]


@pytest.mark.parametrize(
    "literal",
    [
        "other",
        "1 + 1",
        "f()",
        "1e999",
        "{1: 2}",
        "{'a', 'b': 1}",
        "{1, other}",
        "[1 2]",
        "9" * 501,
        "[" * 101 + "]" * 101,
    ],
)
def test_what_is_no_literal_makes_no_call(literal):
    assert not read(
        "lfm2", f"<|tool_call_start|>[f(text={literal})]<|tool_call_end|>"
    ).calls


def test_a_name_that_stands_twice_is_left_to_admission():
    [call] = read(
        "qwen3-coder",
        "<function=f><parameter=text>a</parameter><parameter=text>b</parameter></function>",
    ).calls
    assert call.arguments == '{"text": "a", "text": "b"}'
    assert isinstance(jsontext.parse(call.arguments), jsontext.Failure)


def test_elements_within_a_value_become_objects_and_lists_where_the_schema_says_so():
    item = {"type": "object", "properties": {"id": {"type": "integer"}}}
    tool = Described(
        "f",
        "",
        {
            "type": "object",
            "properties": {
                "tags": {"type": "array", "items": item},
                "text": {"type": "string"},
            },
        },
    )
    sep = "]<]minimax[>["
    text = (
        f'{sep}<tool_call>{sep}<invoke name="f">{sep}<tags>{sep}<item>{sep}<id>1{sep}</id>{sep}</item>{sep}</tags>'
        f"{sep}<text>{sep}<b>x{sep}</b>{sep}</text>{sep}</invoke>{sep}</tool_call>"
    )
    assert calls_of(read("minimax-m3", text, tools=[tool])) == [
        ("f", {"tags": [{"id": 1}], "text": f"{sep}<b>x{sep}</b>"})
    ]


def test_an_element_that_is_closed_and_was_not_open_does_not_swallow_the_next_call():
    sep = "]<]minimax[>["
    broken, good = (
        f'{sep}<invoke name="f">{sep}</text>',
        f'{sep}<invoke name="f">{sep}<count>1{sep}</count>{sep}</invoke>',
    )
    assert calls_of(read("minimax-m3", broken + good)) == [("f", {"count": 1})]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("get_weather<|channel|>analysis", "get_weather"),
        ("get_weather<|channel|><|message|> ", "get_weather"),
        ("get_weather<|chan", "get_weather"),
        ("get_weather<|channel|>[Paris", "get_weather<|channel|>[Paris"),
        ("functions.get_weather", "get_weather"),
        ("functions.unknown", "functions.unknown"),
        ("functions", "functions"),
        ("tool:get_weather", "tool:get_weather"),
        ("get_wether", "get_wether"),
    ],
)
def test_tokens_and_the_known_prefix_are_taken_off_a_name_and_nothing_else(
    written, name
):
    [call] = read(
        "hermes", f'<tool_call>{{"name": "{written}", "arguments": {{}}}}</tool_call>'
    ).calls
    assert call.name == name


# ---------------------------------------------------------------------- ends


@pytest.mark.parametrize("said", [None, "stop", "calls", "length", "error", "refused"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {"text": "a'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}'),
        ("hermes", '<tool_call>{"name": "f", "argum'),
        ("hermes", '<tool_call>{"na'),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"na'),
        ("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=text>\na\n</parameter>"),
        ("lfm2", "<|tool_call_start|>[f(text='a"),
        ("llama3", '{"name": "f", "parameters": {"text": "a'),
    ],
)
def test_a_call_that_breaks_off_never_runs_whatever_the_server_says(
    name, text, said: Finish | None
):
    reader = texts.make_reader(SYNTAXES[name], TOOLS)
    reader.feed(text)
    turn = reader.close(said)
    assert turn.finish == (said if said in ("length", "refused") else "error")
    assert all(
        isinstance(jsontext.parse(call.arguments, turn.finish), jsontext.Failure)
        for call in turn.calls
    )


def test_the_beginning_of_a_call_is_kept_as_far_as_the_model_came():
    [call] = read("lfm2", "<|tool_call_start|>[f(count=1, text='a").calls
    assert call.arguments == """{"count": 1, "text": 'a"""


def test_the_rest_of_a_broken_object_goes_to_its_arguments_for_admission_to_judge():
    turn = read(
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"count": 1} oops}</tool_call> Hi',
    )
    assert (turn.calls[0].arguments, turn.text, turn.finish) == (
        '{"count": 1} oops}',
        " Hi",
        "calls",
    )
    assert isinstance(
        jsontext.parse(turn.calls[0].arguments, lossy=False), jsontext.Failure
    )


@pytest.mark.parametrize(
    "more",
    [
        '"arguments": {"count": 2}',
        '"parameters": {"count": 2}',
        '"name": "get_weather"',
    ],
)
def test_an_object_that_says_two_things_is_no_call_that_a_write_would_run(more):
    told, held = (
        f'{{"name": "f", "arguments": {{"count": 1}}, {more}}}',
        f'{{"arguments": {{}}, {more}, "name": "f"}}',
    )
    for text in (told, held):
        turn = read("hermes", f"<tool_call>{text}</tool_call>")
        parsed = [
            jsontext.parse(call.arguments, turn.finish, lossy=False)
            for call in turn.calls
        ]
        assert all(isinstance(each, jsontext.Failure) for each in parsed)


def test_a_bracket_too_many_does_not_leak_into_the_text():
    assert read(
        "hermes", '<tool_call>{"name": "f", "arguments": {}}}\n</tool_call>'
    ) == Turn(calls=(ToolCall("call_0", "f", "{}"),), finish="calls")


# ---------------------------------------------------------------------- laws over all families


def soup(syntax: Syntax) -> st.SearchStrategy[str]:
    """Text made of what a family's marks are made of, whole and cut."""
    channels = syntax.channels
    marks = [
        mark
        for shape in syntax.formats
        for mark in (*shape.tokens, *shape.starts, *shape.bare)
    ]
    marks += [
        *syntax.tokens,
        *(each if isinstance(each, str) else each[0] for each in syntax.silent),
    ]
    marks += (
        [
            channels.starts,
            channels.body,
            channels.recipient + "f",
            channels.channel + "analysis",
        ]
        if channels
        else []
    )
    bits = [
        '{"name": "f", ',
        "```\n",
        '"arguments": ',
        '{"text": "a',
        '"',
        "{",
        "}",
        "[",
        "]",
        "f(text='a')",
        "f",
        "=",
        ":",
        ",",
        "\\",
        "'",
    ]
    pieces = st.sampled_from(
        [*(mark for mark in marks if mark), *bits, " ", "\n", "中", "```", "1"]
    )
    cut = st.tuples(pieces, st.integers(1, 40)).map(lambda pair: pair[0][: pair[1]])
    return st.lists(pieces | cut, max_size=14).map("".join)


@st.composite
def soups(draw: st.DrawFn) -> tuple[str, str, list[str], bool]:
    name = draw(st.sampled_from(NAMES))
    text = draw(soup(SYNTAXES[name]) | st.text(max_size=30))
    sizes = draw(st.lists(st.integers(1, 9), max_size=8)) or [1]
    pieces, at = [], 0
    while at < len(text):
        pieces.append(text[at : at + sizes[len(pieces) % len(sizes)]])
        at += len(pieces[-1])
    return name, text, pieces, draw(st.booleans())


@settings(max_examples=400, deadline=None)
@given(soups())
def test_any_text_gives_the_same_turn_however_it_is_cut_and_nothing_is_taken_back(case):
    name, text, pieces, reasoning = case
    whole = read(name, text, reasoning=reasoning)
    turn, deltas = feed(name, pieces, reasoning=reasoning)
    assert turn == whole
    assert turn.text.startswith(
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    )
    assert turn.reasoning.startswith(
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    )
    for index, call in enumerate(turn.calls):
        told = [
            delta
            for delta in deltas
            if isinstance(delta, ArgumentsDelta) and delta.index == index
        ]
        # none, where only the end told of the call
        assert {delta.name for delta in told} <= {call.name}
        assert call.arguments.startswith("".join(delta.text for delta in told))


WORDS = st.text(st.sampled_from("abc 中文é\"'\\\n\t{}[]()<>/=:,.;`|1"), max_size=24)
TAGS = st.sampled_from(
    [
        "<b>",
        "</tool_call>",
        "<|im_end|>",
        "</parameter>",
        "[/INST]",
        "<think>",
        "]",
        "}}",
        "')",
        '"}',
    ]
)


@st.composite
def turns(draw: st.DrawFn) -> tuple[str, Turn]:
    """A turn that a family can write: without its own marks, where it has no way to escape them."""
    name = draw(st.sampled_from(CALLING))
    syntax = SYNTAXES[name]
    strings = st.tuples(WORDS, st.just("") | TAGS, WORDS).map("".join)
    shapes = [
        *syntax.formats,
        *(
            [syntax.channels.inside]
            if syntax.channels and syntax.channels.inside
            else []
        ),
    ]
    if any(
        isinstance(shape, ParameterCalls)
        or (isinstance(shape, LiteralCalls) and shape.lead)
        for shape in shapes
    ):
        strings = strings.filter(lambda text: not has_marks(text, syntax))
    of_type: Mapping[str, st.SearchStrategy[object]] = {
        "string": strings,
        "integer": st.integers(),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "array": st.lists(strings | st.integers() | st.none(), max_size=3),
        "object": st.dictionaries(
            st.sampled_from(["a", "b c", "名"]), strings | st.booleans(), max_size=2
        ),
    }
    arguments = st.fixed_dictionaries(
        {}, optional={key: of_type[type] for key, type in VALUES.items()}
    )
    chosen = draw(
        st.lists(
            st.tuples(st.sampled_from([tool.name for tool in TOOLS]), arguments),
            max_size=3,
        )
    )
    calls = [
        ToolCall(f"call_{n}", name, json.dumps(value, ensure_ascii=False))
        for n, (name, value) in enumerate(chosen)
    ]
    text, reasoning = draw(WORDS).strip(" \t\n"), draw(WORDS).strip(" \t\n")
    assume(not has_marks(text, syntax) and not has_marks(reasoning, syntax))
    assume(
        not any(
            text.startswith(tuple(shape.bare)) for shape in syntax.formats if shape.bare
        )
    )
    return name, Turn(
        text, reasoning if syntax.reasoning or syntax.channels else "", calls
    )


def has_marks(text: str, syntax: Syntax) -> bool:
    marks = {
        mark
        for shape in syntax.formats
        for mark in (*shape.tokens, *shape.starts)
        if mark
    }
    marks |= {"[", "{"} if any(shape.loose for shape in syntax.formats) else set()
    marks |= {"</", *syntax.tokens, *syntax.ends}
    return any(mark in text for mark in marks if mark not in (")", "("))


def test_a_text_about_pythons_prompt_keeps_it_though_functionary_opens_headers_with_it():
    turn = read("functionary-v3.2", ">>>all\nPython asks with >>>")
    assert (turn.text, turn.calls) == ("Python asks with >>>", ())


@settings(max_examples=400, deadline=None)
@given(turns())
@example(("functionary-v3.2", Turn(">>>")))
def test_what_is_written_is_read_as_the_same_turn(case):
    name, turn = case
    if name == "functionary-v3.2":
        turn = Turn(turn.text, "", turn.calls)  # it has no place for reasoning
    written = texts.write_answer(SYNTAXES[name], turn, TOOLS)
    back = read(name, written)
    assert calls_of(back) == calls_of(turn)
    assert (back.text, back.reasoning) == (turn.text, turn.reasoning)
    assert back.finish == ("calls" if turn.calls else "stop")
    assert feed(name, list(written))[0] == back


def test_a_family_without_a_form_for_calls_says_so():
    with pytest.raises(ConfigError, match="no form for calls"):
        texts.write_answer(SYNTAXES["plain"], Turn(calls=[ToolCall("a", "f")]))


def test_broken_arguments_of_a_history_are_written_as_an_object():
    written = texts.write_answer(
        SYNTAXES["hermes"], Turn(calls=[ToolCall("a", "f", '{"text": ')])
    )
    assert calls_of(read("hermes", written)) == [("f", {"INVALID_JSON": '{"text": '})]


@pytest.mark.parametrize("name", NAMES)
def test_a_family_names_the_control_tokens_that_it_reads(name):
    tokens = SYNTAXES[name].tokens
    assert len(set(tokens)) == len(tokens)
    assert all("\n" not in token and token == token.strip() for token in tokens)
    assert {end for end in SYNTAXES[name].ends if end.startswith("<")} <= {
        *tokens,
        *SYNTAXES[name].ends,
    }


# ---------------------------------------------------------------------- work


def adversarial(syntax: Syntax) -> list[str]:
    """Beginnings that a careless reader would go back over again and again."""
    marks = {mark for shape in syntax.formats for mark in shape.starts}
    marks |= (
        {syntax.channels.starts, syntax.channels.body} if syntax.channels else set()
    )
    seeds = [
        *marks,
        *(mark + '{"name": "x"' for mark in marks),
        *(mark[:-1] for mark in marks),
    ]
    return [
        seed
        for seed in [
            *seeds,
            "{",
            "[",
            '{"',
            "[{",
            "[f(",
            "f('",
            "<",
            "\n",
            '{"name": "f", "arguments": {',
        ]
        if seed
    ]


ONE_OF_EACH_SHAPE = [
    "hermes",
    "generic-json",
    "mistral",
    "qwen3-coder",
    "glm4",
    "minimax-m3",
    "llama4",
    "gemma4",
    "harmony",
]


def work(name: str, text: str, size: int) -> int:
    """Return how many functions, of Python and of C, reading takes."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event.endswith("call")

    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    reader = texts.make_reader(SYNTAXES[name])
    sys.setprofile(counted)
    try:
        for piece in pieces:
            reader.feed(piece)
        reader.close()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", ONE_OF_EACH_SHAPE)
def test_twice_the_text_is_twice_the_work_however_it_is_cut(name):
    for seed in adversarial(SYNTAXES[name]):
        for size in (1, 50):
            once = work(name, seed * (400 // len(seed)), size)
            twice = work(name, seed * 2 * (400 // len(seed)), size)
            assert twice < 2.5 * once + 200, seed


@pytest.mark.parametrize(("name", "head", "more"), [
    ("hermes", '<tool_call>{"name": "f", "arguments": {"text": "', "x"),
    ("hermes", "<tool_call>", " "),
    ("hermes", "<think>", " \n"),
    ("qwen3-coder", "<function=f><parameter=text>", "y\n"),
    ("lfm2", "<|tool_call_start|>[f(text='", "z"),
    ("generic-json", '{"a": "', "x"),
])  # fmt: skip
def test_what_is_held_back_is_not_copied_for_each_character(name, head, more):
    def feeding(length):
        text = list(head + more * (length // len(more)))
        return lambda: feed(name, text)

    check_growth(feeding, 200_000)


# ---------------------------------------------------------------------- elements within elements

BASKET = Described(
    "order",
    "Order.",
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "object",
                "properties": {
                    "items": {"type": "array", "items": {"type": "integer"}},
                    "note": {"type": "string"},
                    "extras": {"type": "object", "properties": {}},
                },
            },
            "codes": {"type": "array", "items": {"type": "string"}},
        },
    },
)


def test_an_element_within_one_of_its_name_and_an_empty_one_are_read_by_the_schema():
    text = (
        '<tool_call>\n!<invoke name="order">!<items>!<items>!<item>1!</item>!<item>2!</item>!</items>'
        "!<note>a!</note>!<extras>!</extras>!</items>!<codes>!</codes>!</invoke>\n!</tool_call>"
    ).replace("!", "]<]minimax[>[")
    [call] = texts.read_answer(
        SYNTAXES["minimax-m3"], f"]<]minimax[>[{text}", [BASKET]
    ).calls
    assert json.loads(call.arguments) == {
        "items": {"items": [1, 2], "note": "a", "extras": {}},
        "codes": [],
    }


# ---------------------------------------------------------------------- calls that are written wrongly


@pytest.mark.parametrize("name", CALLING)
def test_a_word_anywhere_in_a_call_loses_no_value_and_gives_none_to_another(name):
    syntax = SYNTAXES[name]
    calls = [
        ToolCall("", "get_weather", '{"city": "Paris", "days": 3}'),
        ToolCall("", "get_order", '{"city": "Rome"}'),
    ]
    members = {"city": {"type": "string"}, "days": {"type": "integer"}}
    schema = {"type": "object", "properties": members}
    tools = [Described(call.name, "", schema) for call in calls]
    written = texts.write_answer(syntax, Turn(calls=calls, finish="calls"), tools)
    text = f"{written} Afterwards."
    words = ("Paris", "Rome", "Afterwards")
    right = {"get_weather": "Paris", "get_order": "Rome"}
    for at in range(len(written)):
        broken = f"{text[:at]} zebra {text[at:]}"
        turn = texts.read_answer(syntax, broken, tools)
        parts = [f"{call.name} {call.arguments}" for call in turn.calls]
        kept = " ".join([turn.text, turn.reasoning, *parts]).replace(" zebra ", "")
        assert [word for word in words if word not in kept] == [], broken
        for call in turn.calls:
            parsed = jsontext.parse(call.arguments)
            if call.name in right and isinstance(parsed, jsontext.Parsed):
                city = str(dict(parsed.value).get("city", right[call.name]))
                assert city == right[call.name] or "zebra" in city, broken


NOTED = [
    Described(
        name,
        "",
        {"type": "object", "properties": {key: {"type": "string"} for key in ("city", "note")}},
    )
    for name in ("get_weather", "get_order")
]  # fmt: skip


def noted_calls() -> list[ToolCall]:
    return [
        ToolCall("", "get_weather", '{"city": "Paris", "note": "Left"}'),
        ToolCall("", "get_order", '{"city": "Rome", "note": "Right"}'),
    ]


def marks_in(text: str, syntax: Syntax) -> list[tuple[int, int]]:
    """Return where the marks of calls and the signs of literals stand in a text."""
    channels = syntax.channels
    formats = [*syntax.formats, *([channels.inside] if channels and channels.inside else [])]  # fmt: skip
    marks = {mark for shape in formats for mark in (*shape.tokens, *shape.starts)}
    marks |= {*syntax.tokens, *'"{}[]():,'}
    marks |= {*channels.tokens, channels.recipient} if channels else set()
    longest_first = sorted(marks - {""}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return [found.span() for found in pattern.finditer(text)]


@pytest.mark.parametrize("word", ["left777", " left777 "])
@pytest.mark.parametrize("name", CALLING)
def test_a_word_anywhere_in_a_call_is_kept_somewhere(name, word):
    syntax = SYNTAXES[name]
    written = texts.write_answer(syntax, Turn(calls=noted_calls()), NOTED)
    for place in range(len(written) + 1):
        text = f"{written[:place]}{word}{written[place:]}"
        turn = read(name, text, tools=NOTED)
        calls = [f"{call.id} {call.name} {call.arguments}" for call in turn.calls]
        kept = " ".join([turn.text, turn.reasoning, *calls])
        end = min((text.index(end) for end in syntax.ends if end in text), default=len(text))  # fmt: skip
        # Muse names a call in the header and in the body, and the body's name counts.
        is_dropped = name == "muse" and re.search(r"to=[\w.]*left777", text)
        assert is_dropped or "left777" in kept or "left777" not in text[:end], text


@pytest.mark.parametrize("name", CALLING)
def test_a_missing_mark_or_two_mix_no_two_calls_and_lose_no_value(name):
    syntax = SYNTAXES[name]
    written = texts.write_answer(syntax, Turn(calls=noted_calls()), NOTED)
    spans = marks_in(written, syntax)
    broken = [written[:start] + written[end:] for start, end in spans]
    broken += [
        written[:start] + written[end:after] + written[beyond:]
        for (start, end), (after, beyond) in pairwise(spans)
    ]
    foreign = {
        "get_weather": ("Rome", "Right", "get_order"),
        "get_order": ("Paris", "Left", "get_weather"),
    }
    for text in broken:
        turn = texts.read_answer(syntax, text, NOTED)
        for call in turn.calls:
            parsed = jsontext.parse(call.arguments, turn.finish)
            if isinstance(parsed, jsontext.Parsed):
                said = str(parsed.value)
                assert not [
                    word for word in foreign.get(call.name, ()) if word in said
                ], text
        parts = [f"{call.name} {call.arguments}" for call in turn.calls]
        kept = " ".join([turn.text, turn.reasoning, *parts])
        for word in ("Paris", "Left", "Rome", "Right"):
            assert word in kept or word not in text, text
        if text in broken[::7]:
            assert feed(name, list(text), NOTED)[0] == turn


FLAT = [
    name
    for name in CALLING
    for channels in [SYNTAXES[name].channels]
    for shape in [*SYNTAXES[name].formats, channels and channels.inside]
    if isinstance(shape, ParameterCalls) and not shape.nested
]


@pytest.mark.parametrize("name", FLAT)
def test_a_call_within_a_value_of_another_call_is_a_part_of_that_value(name):
    syntax = SYNTAXES[name]
    channels = syntax.channels
    shape = channels.inside if channels and channels.inside else syntax.formats[0]
    example = shape.encode(noted_calls(), {tool.name: tool.parameters for tool in NOTED})  # fmt: skip
    note = f"Write it like this:\n{example}\nand nothing else."
    call = ToolCall("", "get_order", json.dumps({"note": note, "city": "Rome"}))
    written = texts.write_answer(syntax, Turn(calls=[call]), NOTED)
    turn, _ = feed(name, list(written), NOTED)
    assert (calls_of(turn), turn.text) == (
        [("get_order", {"note": note, "city": "Rome"})],
        "",
    )


@pytest.mark.parametrize("name", FLAT)
def test_a_mark_that_a_value_only_mentions_opens_no_call_in_it(name):
    syntax = SYNTAXES[name]
    channels = syntax.channels
    shape = channels.inside if channels and channels.inside else syntax.formats[0]
    assert isinstance(shape, ParameterCalls)
    opening = (shape.call.opens, shape.parameter.opens)
    closing = (shape.call.closes, shape.parameter.closes)
    for first, second in itertools.product((*opening, *closing), repeat=2):
        for city, note in ((f"a{first}", f"{second} b"), (f"{first} a.", f"b {second}c")):  # fmt: skip
            meant = [("get_order", {"city": city, "note": note}), ("get_weather", {"city": note})]  # fmt: skip
            calls = [ToolCall("", called, json.dumps(given)) for called, given in meant]
            written = texts.write_answer(syntax, Turn(calls=calls), NOTED)
            turn, _ = feed(name, list(written), NOTED)
            assert calls_of(turn) == meant


@pytest.mark.parametrize("name", FLAT)
def test_a_mark_in_a_string_of_a_list_is_a_part_of_that_list(name):
    syntax = SYNTAXES[name]
    channels = syntax.channels
    shape = channels.inside if channels and channels.inside else syntax.formats[0]
    assert isinstance(shape, ParameterCalls)
    opens, closes = shape.parameter.opens, shape.parameter.closes
    tags = [f"a {opens} b", f"{shape.call.opens} c{closes}d [1]{closes}"]
    call = ToolCall("", "f", json.dumps({"tags": tags, "count": 1}))
    written = texts.write_answer(syntax, Turn(calls=[call]), TOOLS)
    turn, _ = feed(name, list(written))
    assert calls_of(turn) == [("f", {"tags": tags, "count": 1})]


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("missing", [1, 2])
def test_a_parameter_that_is_not_closed_leaves_the_next_call_alone(name, missing):
    syntax = SYNTAXES[name]
    channels = syntax.channels
    shape = channels.inside if channels and channels.inside else syntax.formats[0]
    assert isinstance(shape, ParameterCalls)
    good = ToolCall("", "get_order", '{"city": "Rome"}')
    written = texts.write_answer(syntax, Turn(calls=[*noted_calls()[:1], good]), NOTED)
    ends = [at for at in range(len(written)) if written.startswith(shape.parameter.closes, at)]  # fmt: skip
    at = ends[missing - 1]
    text = written[:at] + written[at + len(shape.parameter.closes) :]
    turn, _ = feed(name, list(text), NOTED)
    assert calls_of(turn) == [("get_order", {"city": "Rome"})]
    assert "Paris" in turn.text and "Left" in turn.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm4", "I open with <tool_call> and then: <tool_call>f\n</tool_call>"),
        ("glm4", "<tool_call>f<arg_key>count<tool_call>f\n</tool_call>"),
        ("spark", "<tool_call>f<arg_key>count</arg<tool_call>f</tool_call>"),
        ("qwen3-coder", "<function=f<function=f>\n</function>"),
        ("qwen3-coder", "<function=f><parameter=count<tool_call><function=f>\n</function>"),
        ("minimax-m2", '<invoke name="f<invoke name="f"></invoke>'),
        ("kimi-k3", '<|open|>call tool="f" index="1<|open|>call tool="f"<|sep|><|close|>call<|sep|>'),
        ("mistral", "[TOOL_CALLS] is a token. [TOOL_CALLS]f[ARGS]{}"),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]abc[TOOL_CALLS]f[ARGS]{}"),
        ("kimi-k2", "<|tool_call_begin|>functions.f:0<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"),
        ("deepseek-v3.1", "<｜tool▁call▁begin｜>f<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
    ],
)  # fmt: skip
def test_a_call_is_found_behind_the_beginning_of_one_that_is_none(name, text):
    turn, _ = feed(name, list(text))
    assert calls_of(turn) == [("f", {})]


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("lfm2", "<|tool_call_start|>[f(text='Paris, and what then", "and what then"),
        ("lfm2", "<|tool_call_start|>[f(text='a' Paris", "Paris"),
        ("gemma4", '<|tool_call>call:f{text:<|"|>Paris', "Paris"),
        ("gigachat", '<|function_call|>{"name": "f", "argumen Paris', "Paris"),
        ("hermes", '<tool_call>{"name": "f", "note": "Paris', "Paris"),
        ("hermes", '<tool_call>{"arguments": {"text": "Paris"}, "name": "f"', "Paris"),
        ("hermes", '<tool_call>{"arguments": {"text": "Paris"}, "name": "f", "i', "Paris"),
        ("harmony", " to=functions.f Paris it is", "Paris"),
        ("harmony", "<|start|>assistant Paris and Rome", "Paris"),
        ("harmony", "<|channel|>commentary Paris is nice<|message|>Hi", "Paris"),
    ],
)  # fmt: skip
def test_what_was_written_when_a_call_broke_off_is_kept(name, text, word):
    turn, _ = feed(name, list(text))
    arguments = "".join(call.arguments for call in turn.calls)
    assert word in turn.text + arguments
    assert not turn.calls or turn.finish == "error"


@pytest.mark.parametrize("name", ["gemma4", "functiongemma"])
def test_a_string_that_is_not_closed_leaves_the_next_call_alone(name):
    syntax = SYNTAXES[name]
    written = texts.write_answer(syntax, Turn(calls=noted_calls()), NOTED)
    [shape] = syntax.formats
    assert isinstance(shape, LiteralCalls)
    [quote] = shape.quotes
    at = written.index("Left") + len("Left")
    turn, _ = feed(name, list(written[:at] + written[at + len(quote) :]), NOTED)
    assert calls_of(turn) == [("get_order", {"city": "Rome", "note": "Right"})]
    assert "Paris" in turn.text and "Left" in turn.text


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_a_mark_within_another_one_that_has_begun_is_no_mark_yet(size):
    sep = "]<]minimax[>["
    good = f'{sep}<invoke name="f">{sep}<count>1{sep}</count>{sep}</invoke>'
    text = f'{sep}<tool_call>\n{sep}<invoke name="f">{sep}<cou{sep}<tool_call>{good}'
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    turn, _ = feed("minimax-m3", pieces)
    assert turn == read("minimax-m3", text)
    assert calls_of(turn) == [("f", {"count": 1})]


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[str, str]:
    """Calls, some of them cut, among words and marks of all families."""
    name = draw(st.sampled_from(CALLING))
    syntax = SYNTAXES[name]
    words = st.from_regex(r"[a-z]{3,6}[0-9]{3}", fullmatch=True)

    def write(word: str) -> str:
        calls = [ToolCall("", "get_order", json.dumps({"city": word}))]
        return texts.write_answer(syntax, Turn(calls=calls), NOTED)

    calls = words.map(write)
    cut = st.tuples(calls, st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]])
    own = [write("a")[start:end] for start, end in marks_in(write("a"), syntax)]
    every = sorted({token for each in SYNTAXES.values() for token in each.tokens})
    odd = [
        '"',
        "}",
        "\r\n",
        "```\n",
        "＜tool_call＞",
        "<\u200btool_call>",
        "[ＴＯＯＬ_CALLS]",
    ]
    twice = (
        '{"name": "get_weather", "name": "get_order", "arguments": {"city": "abc123"}}'
    )
    parts = st.one_of(
        calls,
        cut,
        words.map(" {} ".format),
        st.sampled_from([*own, *odd, twice]),
        st.sampled_from(every),
    )
    return name, "".join(draw(st.lists(parts, min_size=1, max_size=7)))


@settings(max_examples=400, deadline=None)
@given(mixtures())
def test_no_mixture_of_calls_marks_and_words_loses_a_word(case):
    name, text = case
    turn, deltas = feed(name, list(text), NOTED)
    assert turn == read(name, text, tools=NOTED)
    given = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert turn.text.startswith(given)
    calls = [f"{call.id} {call.name} {call.arguments}" for call in turn.calls]
    kept = " ".join([turn.text, turn.reasoning, *calls])
    ends = [text.index(end) for end in SYNTAXES[name].ends if end in text]
    for word in re.findall(r"[a-z]{3,6}[0-9]{3}", text[: min(ends, default=None)]):
        assert word in kept


WORDS_AS_MARKS = (
    "command-r",
    "functools",
    "react",
    "deepseek-v3",
    "generic-json",
    "xlam",
)
"""Families that mark calls with words or code fences, which anybody writes: those stay where they mark nothing."""


@pytest.mark.parametrize("name", [name for name in CALLING if name not in WORDS_AS_MARKS])  # fmt: skip
@pytest.mark.parametrize("between", ["", "\n"])
def test_a_mark_too_many_around_calls_is_not_shown_and_costs_no_call(name, between):
    syntax = SYNTAXES[name]
    written = texts.write_answer(syntax, Turn(calls=noted_calls()), NOTED)
    wanted = [(call.name, call.arguments) for call in noted_calls()]
    tokens = set(syntax.tokens)
    shown = 0
    for start, end in marks_in(written, syntax):
        mark = written[start:end]
        if mark not in tokens:
            continue
        text = f"{written[:start]}{mark}{between}{written[start:]}"
        turn, _ = feed(name, list(text), NOTED)
        if [(call.name, call.arguments) for call in turn.calls] == wanted:
            assert not [token for token in tokens if token in turn.text], mark
            shown += 1
    assert shown or not tokens.intersection(
        written[start:end] for start, end in marks_in(written, syntax)
    )


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("hermes", "<tool_call>", "<tool_call>"),
        ("hermes", "The tag is <tool_call>", "The tag is <tool_call>"),
        ("hermes", "Write <tool_call> </tool_call> so.", "Write <tool_call> </tool_call> so."),
        ("hermes", "It ends with </tool_call> always", "It ends with </tool_call> always"),
        ("mistral", "[TOOL_CALLS] [TOOL_CALLS] is written twice", "[TOOL_CALLS] [TOOL_CALLS] is written twice"),
        ("kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>",
         "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
        ("harmony", "<|message|>Hi<|end|>", "Hi"),
        ("harmony", "<|start|>assistant<|start|>assistant<|channel|>final<|message|>Hi", "Hi"),
    ],
)  # fmt: skip
def test_a_mark_that_a_text_tells_of_stays_in_it(name, text, shown):
    turn, deltas = feed(name, list(text))
    assert (turn.text, turn.calls) == (shown, ())
    assert shown.startswith(
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    )


def test_text_behind_the_marks_of_calls_is_no_mark():
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    turn = read("hermes", f"{call}</tool_call>\nDone. {call} See </tool_call>.")
    assert (len(turn.calls), turn.text) == (2, "\nDone.  See </tool_call>.")


@pytest.mark.parametrize("name", CALLING)
def test_line_breaks_of_windows_and_a_byte_order_mark_change_no_call(name):
    syntax = SYNTAXES[name]
    written = texts.write_answer(syntax, Turn(calls=noted_calls()), NOTED)
    for text in (written.replace("\n", "\r\n"), f"\ufeff{written}"):
        turn, _ = feed(name, list(text), NOTED)
        assert calls_of(turn) == calls_of(Turn(calls=noted_calls()))
        assert turn.text.strip() == ""


@pytest.mark.parametrize("name", ["hermes", "llama3", "mistral"])
def test_arguments_under_a_wrong_name_are_no_call_without_any(name):
    syntax = SYNTAXES[name]
    call = ToolCall("", "wipe", '{"path": "/tmp"}')
    text = texts.write_answer(syntax, Turn(calls=[call], finish="calls"))
    for word in ("arguments", "parameters"):
        text = text.replace(f'"{word}"', '"argments"')
    turn = texts.read_answer(syntax, text)
    assert (turn.calls, turn.text) == ((), text)
    bare = texts.write_answer(
        syntax, Turn(calls=[ToolCall("", "wipe", "{}")], finish="calls")
    )
    assert [each.arguments for each in texts.read_answer(syntax, bare).calls] == ["{}"]
