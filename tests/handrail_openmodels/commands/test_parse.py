"""`handrail parse`: what a model wrote, taken apart."""

import json

import pytest

from tests.support.weather import CALL, answer_in, every_caller


def message(arguments, name="get_weather", **fields):
    """Return a message of OpenAI's chat with one call, as JSON."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return json.dumps(
        {"role": "assistant", "content": None, "tool_calls": [call], **fields}
    )


def test_an_answer_without_calls_is_text_in_the_plain_dialect(cli):
    result = cli("parse", "--dialect", "plain", "--json", stdin="<tool_call> Hi")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["text"], told["calls"]) == (0, "<tool_call> Hi", [])


def parsed(cli, text, *words, code=0):
    """Parse a message of OpenAI's chat and return the document."""
    result = cli("parse", "--dialect", "openai-chat", "--json", *words, stdin=text)
    assert (result.exit_code, result.stderr) == (code, "")
    return json.loads(result.stdout)


@pytest.mark.parametrize("spoken", every_caller(), ids=lambda spoken: spoken.name)
def test_a_call_is_read_in_every_caller(cli, spoken, weather):
    result = cli(
        "parse",
        "--dialect",
        spoken.name,
        "--tools",
        weather,
        "--json",
        stdin=answer_in(spoken),
    )
    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], told["dialect"], told["finish"]) == (
        0,
        True,
        spoken.name,
        "calls",
    )
    assert [(call["name"], call["value"], call["repairs"]) for call in told["calls"]] == [
        (CALL.name, {"city": "Paris"}, []),
    ]  # fmt: skip


def test_a_person_reads_the_answer_part_by_part(cli, weather):
    text = message(
        "{'city': 'Paris',}", content="Let me\nlook.", reasoning_content="Paris."
    )
    result = cli("parse", "--dialect", "openai-chat", "--tools", weather, stdin=text)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "reasoning  Paris.",
        "text       Let me",
        "           look.",
        "call 1     get_weather  (c1)",
        "           {",
        '             "city": "Paris"',
        "           }",
        "           ~ single_quotes: single quotes around a string",
        "           ~ trailing_comma: a comma after the last member",
        "finish     calls",
    ]


def test_control_characters_of_a_model_do_not_reach_the_terminal(cli):
    text = message("{}", name="\x1b[2Jlook", content="a\x1b[31mb")
    assert "\x1b" not in cli("parse", "--dialect", "openai-chat", stdin=text).stdout


@pytest.mark.parametrize(("text", "code"), [
    (message('{"city": "Paris"}', name="get_wether"), "UNKNOWN_TOOL"),
    (message('{"town": "Paris"}'), "INVALID_ARGUMENTS"),
    (message('{"city": '), "TRUNCATED_CALL"),
    (message('{"city": "a", "city": "b"}'), "BAD_JSON"),
])  # fmt: skip
def test_a_call_that_would_be_refused_is_marked_and_told_by_the_exit_code(
    cli, weather, text, code
):
    result = cli("parse", "--dialect", "openai-chat", "--tools", weather, stdin=text)
    assert result.exit_code == 1
    assert f"✗ {code}: " in result.stdout
    document = parsed(cli, text, "--tools", weather, code=1)
    assert (document["ok"], document["calls"][0]["failure"]["error_code"]) == (
        False,
        code,
    )


def test_without_tools_no_call_is_refused_for_its_tool(cli):
    assert parsed(cli, message('{"town": "Paris"}', name="anything"))["calls"][0][
        "value"
    ] == {"town": "Paris"}


def test_a_guess_is_marked_and_refused_to_a_tool_that_writes(cli, shop):
    text = message('Sure! {"order_id": "1"}', name="delete_order")
    alone = parsed(cli, text)["calls"][0]
    assert (alone["repairs"], alone["lossy"]) == (["text_before"], True)
    assert (
        parsed(cli, text, "--tools", shop, code=1)["calls"][0]["failure"]["error_code"]
        == "BAD_JSON"
    )


def test_a_name_that_leaked_template_words_is_told_with_the_tool_that_is_meant(
    cli, weather
):
    call = parsed(
        cli,
        message('{"city": "Paris"}', name="functions.get_weather"),
        "--tools",
        weather,
    )["calls"][0]
    assert (call["name"], call["tool"]) == ("functions.get_weather", "get_weather")


def test_what_a_python_type_refuses_is_marked_too(cli, tmp_path):
    file = tmp_path / "even.py"
    file.write_text(
        """
from typing import Annotated
from pydantic import AfterValidator
import handrail as hr

def even(number: int) -> int:
    if number % 2:
        raise ValueError("is odd")
    return number

@hr.tool(effect="read")
def halve(number: Annotated[int, AfterValidator(even)]) -> int:
    "Halve an even number."
    return number // 2
"""
    )
    call = parsed(
        cli, message('{"number": 3}', name="halve"), "--tools", str(file), code=1
    )["calls"][0]
    assert (call["value"], call["failure"]["error_code"]) == (
        {"number": 3},
        "INVALID_ARGUMENTS",
    )


def test_arguments_are_told_verbatim_and_as_the_tool_would_get_them(cli, tmp_path):
    file = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}}
    file.write_text(json.dumps([{"name": "forecast", "parameters": schema}]))
    call = parsed(cli, message('{"days": "3"}', name="forecast"), "--tools", str(file))[
        "calls"
    ][0]
    assert (call["arguments"], call["value"]) == ('{"days": "3"}', {"days": 3})
    assert call["repairs"] != []


@pytest.mark.parametrize(("words", "text", "says"), [
    (["--dialect", "openai-chat"], "Hello", "a message of openai-chat is not JSON"),
    (["--dialect", "openai-chat"], "[1]", "is a JSON object"),
    (["--dialect", "openai-chat"], '{"type": "message", "output": []}', "this is no OpenAI chat message"),
    (["--dialect", "openai-chat", "--opened", "<think>"], message("{}"), "leave out --opened"),
    (["--dialect", "morse"], "...", "known are openai-chat"),
])  # fmt: skip
def test_what_cannot_be_used_is_told_in_one_sentence(cli, words, text, says):
    result = cli("parse", *words, stdin=text)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr


def test_many_answers_are_read_each_with_its_own_tools(cli, weather):
    bare = json.loads(message('{"city": "Paris"}'))
    tools = [{"name": "look", "parameters": {"type": "object", "properties": {}}}]
    lines = [
        bare,                                         # the message itself
        # the same, where there is no such tool
        {"id": 7, "body": bare, "tools": tools},
        {"text": message('{"city": "Rome"}')},        # as text
        {"body": 3},
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, lines))
    result = cli(
        "parse", "--dialect", "openai-chat", "--tools", weather, "--jsonl", stdin=text
    )
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, [each["ok"] for each in told]) == (
        1,
        [True, False, True, False],
    )
    assert (told[1]["id"], told[1]["calls"][0]["failure"]["error_code"]) == (
        7,
        "UNKNOWN_TOOL",
    )
    assert told[2]["calls"][0]["value"] == {"city": "Rome"}
    assert told[3]["error"] == "a message of openai-chat is a JSON object"


def test_a_line_of_a_prompt_dialect_holds_text_and_what_the_prompt_had_opened(
    cli, call_lines
):
    lines = [
        "CALL look {}",
        {"text": "CALL look {}"},
        {"text": "look {}", "opened": "CALL "},
        {"body": {}},
    ]
    text = "\n".join(map(json.dumps, lines))
    told = list(
        map(
            json.loads,
            cli(
                "parse", "--dialect", call_lines, "--jsonl", stdin=text
            ).stdout.splitlines(),
        )
    )
    assert [each["ok"] for each in told] == [True, True, True, False]
    assert told[0]["calls"] == told[1]["calls"] == told[2]["calls"] != []
    assert "give its text as `text`" in told[3]["error"]


def test_what_the_prompt_had_opened_may_be_said_for_all(cli, call_lines):
    told = cli(
        "parse", "--dialect", call_lines, "--opened", "CALL ", "--json", stdin="look {}"
    ).stdout
    assert json.loads(told)["calls"][0]["name"] == "look"


HERMES = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
)


@pytest.mark.parametrize(("name", "text", "likely"), [
    ("llama3", HERMES, "hermes"),
    ("hermes", '{"name": "get_weather", "parameters": {"city": "Paris"}}', "llama3"),
    ("harmony", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', "mistral"),
])  # fmt: skip
def test_a_text_that_has_a_call_in_another_dialect_is_said_to_look_like_it(
    cli, name, text, likely
):
    result = cli("parse", "--dialect", name, stdin=text)
    assert result.exit_code == 1
    assert (
        f"looks like a call of {likely}: parse it with --dialect {likely}"
        in result.stdout
    )
    told = json.loads(cli("parse", "--dialect", name, "--json", stdin=text).stdout)
    assert (told["ok"], told["calls"], told["looks_like"]) == (False, [], likely)


@pytest.mark.parametrize("text", ["It is 21 °C.", '{"answer": 3}', "[1] see f(x) < 3"])
def test_a_text_without_a_call_in_any_dialect_is_an_answer(cli, text):
    result = cli("parse", "--dialect", "llama3", stdin=text)
    assert (result.exit_code, "looks like" in result.stdout) == (0, False)
