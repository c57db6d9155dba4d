"""`handrail render`: what a model sees."""

import json

import pytest

from handrail.dialects import WireDialect
from handrail.testing.contracts.dialects import places, with_other
from handrail_openmodels import parts
from tests.support.weather import QUESTION, TOOLS, every_writer

DEFINITIONS = {
    "chat form": [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {
        "type": "object", "properties": {"at": {"type": "string"}}}}}],
    "bare": [{"name": "look", "description": "Look.", "parameters": {
        "type": "object", "properties": {"at": {"type": "string"}}}}],
    "MCP": {"tools": [{"name": "look", "description": "Look.", "inputSchema": {
        "type": "object", "properties": {"at": {"type": "string"}}}}]},
}  # fmt: skip


def rendered(cli, case, *words, name="openai-chat"):
    """Render a case, which must go well, and return the document."""
    text = case if isinstance(case, str) else json.dumps(case, ensure_ascii=False)
    result = cli("render", "--dialect", name, "--json", *words, stdin=text)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("spoken", every_writer(), ids=lambda spoken: spoken.name)
def test_a_question_with_tools_is_printed_as_the_dialect_writes_it(
    cli, spoken, weather
):
    told = rendered(cli, QUESTION, "--tools", weather, name=spoken.name)
    written = spoken.encode_request(QUESTION, TOOLS)
    place = "body" if isinstance(spoken, WireDialect) else "prompt"
    assert (told["v"], told["ok"], told["dialect"], told[place]) == (
        1,
        True,
        spoken.name,
        written,
    )


@pytest.mark.parametrize("spoken", every_writer(), ids=lambda spoken: spoken.name)
def test_without_json_stdout_is_the_request_and_nothing_else(cli, spoken):
    printed = cli("render", "--dialect", spoken.name, stdin=QUESTION).stdout
    written = spoken.encode_request(QUESTION)
    assert (
        json.loads(printed) if isinstance(spoken, WireDialect) else printed
    ) == written


@pytest.mark.parametrize("name", parts.UNPROMPTED)
def test_a_dialect_that_only_reads_says_so_when_a_prompt_is_asked_for(cli, name):
    result = cli("render", "--dialect", name, stdin=QUESTION)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert f"{name} can only be read" in result.stderr


def test_a_prompt_is_printed_to_its_last_character(cli, call_lines):
    assert (
        cli("render", "--dialect", call_lines, stdin="Hi\n").stdout
        == "USER Hi\nMODEL\n"
    )


def test_a_conversation_may_be_messages_alone(cli):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "你好"},
    ]
    assert rendered(cli, messages)["body"]["messages"] == messages
    assert rendered(cli, messages[1])["body"]["messages"] == messages[1:]


def test_a_case_brings_its_tools_and_options_along(cli, weather):
    case = {
        "messages": "Hi",
        "tools": DEFINITIONS["bare"],
        "options": {"model": "m", "tool_choice": "look"},
    }
    told = rendered(cli, case, "--tools", weather)
    assert told["path"] == "/chat/completions"
    assert told["body"]["model"] == "m"
    assert told["body"]["tool_choice"]["function"]["name"] == "look"
    # its own, and no others
    assert [tool["function"]["name"] for tool in told["body"]["tools"]] == ["look"]


@pytest.mark.parametrize("form", DEFINITIONS)
def test_definitions_may_be_written_in_every_usual_form(cli, tmp_path, form):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(DEFINITIONS[form]))
    told = rendered(cli, "Hi", "--tools", str(file))
    assert told["body"]["tools"] == DEFINITIONS["chat form"]


@pytest.mark.parametrize("arguments", ['{"at": "北京"}', {"at": "北京"}])
def test_arguments_of_earlier_calls_may_be_text_or_objects(cli, arguments):
    calls = [
        {
            "id": "c",
            "type": "function",
            "function": {"name": "look", "arguments": arguments},
        }
    ]
    messages = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
    ]
    sent = rendered(cli, messages)["body"]["messages"][0]["tool_calls"][0]["function"][
        "arguments"
    ]
    assert sent == '{"at": "北京"}'


def test_a_question_in_a_file_is_asked_without_its_line_end(cli, tmp_path):
    file = tmp_path / "question.txt"
    file.write_text("Why?\n")
    told = json.loads(cli("render", "--dialect", "openai-chat", str(file)).stdout)
    assert told["messages"] == [{"role": "user", "content": "Why?"}]


@pytest.mark.parametrize(("case", "says"), [
    ('[{"role": "user"', "the conversation is not JSON"),
    ("[]", "a conversation is a list of messages"),
    ('{"question": "Hi"}', "a conversation is a list of messages"),
    ('["Hi"]', "message 1 is no object"),
    ('[{"role": "user", "content": 7}]', "content of message 1"),
    ('[{"role": "user", "content": [{"type": "text", "text": 7}]}]', "content of message 1"),
    ('[{"role": "clerk", "content": "Hi"}]', "'clerk'"),
    ('[{"role": "user", "content": [{"n": NaN}]}]', "holds NaN"),
    (f'[{{"role": "user", "content": [{{"n": {"[" * 500}{"]" * 500}}}]}}]', "100 levels"),
    ('[{"role": "assistant", "tool_calls": ["look"]}]', "`tool_calls` of message 1"),
    ('{"messages": "Hi", "tools": "look"}', "tools are a list of definitions"),
    ('{"messages": "Hi", "tools": [{"description": "?"}]}', "tool 1 has no `name`"),
    ('{"messages": "Hi", "tools": [{"name": "look", "parameters": ["at"]}]}', "parameters of tool 'look'"),
    ('{"messages": "Hi", "options": {"temprature": 1}}', "did you mean `temperature`?"),
    ('{"messages": "Hi", "options": {"max_tokens": "many"}}', "option `max_tokens`: "),
    ('{"messages": "Hi", "options": []}', "`options` is no object"),
    ('{"messages": "Hi", "options": {"tool_choice": "look"}}', "the request has no tools"),
])  # fmt: skip
def test_a_case_that_cannot_be_used_is_told_in_one_sentence(cli, case, says):
    result = cli("render", "--dialect", "openai-chat", stdin=case)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr


@pytest.mark.parametrize(("words", "says"), [
    (["--dialect", "morse"], "known are openai-chat"),
    (["--dialect", "openai-chat", "--json", "--jsonl"], "choose one"),
    (["--dialect", "openai-chat", "nowhere.txt"], "there is no file nowhere.txt"),
    (["--dialect", "openai-chat", "--tools", "nowhere.json"], "there is no file nowhere.json"),
    ([], "--dialect"),
])  # fmt: skip
def test_a_mistake_on_the_command_line_is_told(cli, words, says):
    result = cli("render", *words, stdin="Hi")
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"\xff[]", "cannot be read"), (b"[", "is not JSON"), (b"3", "a list")],
)
def test_definitions_that_cannot_be_used_are_told(cli, tmp_path, content, says):
    file = tmp_path / "tools.json"
    file.write_bytes(content)
    result = cli("render", "--dialect", "openai-chat", "--tools", str(file), stdin="Hi")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr


@pytest.mark.parametrize("spoken", every_writer(), ids=lambda spoken: spoken.name)
def test_a_message_of_any_shape_is_printed_or_told_in_a_sentence(cli, spoken):
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "look", "arguments": "{}"},
    }
    said = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"}]  # fmt: skip
    case = {"messages": said, "tools": DEFINITIONS["chat form"]}
    lines = [
        json.dumps(with_other(case, place, odd))
        for place in places(case)
        for odd in (None, 7, "odd", ["odd"], {})
    ]
    told = cli(
        "render", "--dialect", spoken.name, "--jsonl", stdin="\n".join(lines)
    ).stdout.splitlines()
    assert len(told) == len(lines)


def test_of_many_cases_one_that_fails_does_not_stop_the_others(cli):
    lines = [
        '"One"',
        "",
        "{oops",
        '{"id": "third", "messages": "Three"}',
        '{"messages": "Four", "options": {"x": 1}}',
    ]
    result = cli(
        "render", "--dialect", "openai-chat", "--jsonl", stdin="\n".join(lines)
    )
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (1, "")
    assert [(each["line"], each["ok"], each.get("id")) for each in told] == [
        (1, True, None), (3, False, None), (4, True, "third"), (5, False, None),
    ]  # fmt: skip
    assert told[2]["body"]["messages"][0]["content"] == "Three"
    assert "line 3 is not JSON" in told[1]["error"]


def test_lines_that_are_all_well_end_well(cli):
    assert (
        cli(
            "render", "--dialect", "openai-chat", "--jsonl", stdin='"One"\n"Two"'
        ).exit_code
        == 0
    )


@pytest.mark.parametrize("spoken", every_writer(), ids=lambda spoken: spoken.name)
def test_a_conversation_with_a_call_and_its_result_is_printed_in_every_writer(
    cli, spoken
):
    calls = [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": "x"}'},
        }
    ]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "seen"},
    ]
    told = rendered(cli, messages, name=spoken.name)
    assert told.get("body", told.get("prompt")) == spoken.encode_request(messages)


@pytest.mark.parametrize(
    ("name", "field"), [("anthropic", "output_config"), ("openai-responses", "text")]
)
def test_an_option_that_leaves_no_place_for_the_form_of_the_answer_is_told(
    cli, name, field
):
    options = {"output": {"schema": {"type": "object"}}, "extra": {field: 7}}
    result = cli(
        "render",
        "--dialect",
        name,
        stdin=json.dumps({"messages": "Hi", "options": options}),
    )
    assert (
        result.exit_code,
        result.stderr.count("\n"),
        f"`{field}` is no object" in result.stderr,
    ) == (2, 1, True)
