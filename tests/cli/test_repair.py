"""`handrail repair`: argument text, read as a model's is."""

import json

import pytest


def test_the_value_is_on_stdout_and_the_repairs_by_name_on_stderr(cli):
    result = cli("repair", stdin="{'city': '北京',}\n")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"city": "北京"})
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == [
        "single_quotes",
        "trailing_comma",
    ]


def test_strict_json_needs_no_repair(cli):
    assert cli("repair", stdin='{"a": 1}').stderr == ""


@pytest.mark.parametrize(("text", "words", "code"), [
    ('{"a": 1', [], "TRUNCATED_CALL"),                      # still open: never closed
    ('{"a": 1}', ["--finish", "length"], "TRUNCATED_CALL"), # looks whole, and was cut
    ('{"a": 1, "a": 2}', [], "BAD_JSON"),                   # two readings
    ('{"a": NaN}', [], "BAD_JSON"),
    # a guess, and a write takes none
    ("Sure! {\"a\": 1}", ["--write"], "BAD_JSON"),
])  # fmt: skip
def test_what_is_refused_is_told_as_a_model_is_told(cli, text, words, code):
    result = cli("repair", *words, stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{code}: ")


def test_the_document_says_whether_it_was_a_guess(cli):
    document = json.loads(cli("repair", "--json", stdin='Sure! {"a": 1}').stdout)
    assert document == {
        "v": 1,
        "ok": True,
        "value": {"a": 1},
        "repairs": ["text_before"],
        "lossy": True,
    }


def test_a_refusal_as_json_is_the_error_contract(cli):
    result = cli("repair", "--json", stdin="{")
    document = json.loads(result.stdout)
    assert (
        result.exit_code,
        document["v"],
        document["ok"],
        document["error_code"],
    ) == (1, 1, False, "TRUNCATED_CALL")


def test_the_text_may_be_a_file(cli, tmp_path):
    file = tmp_path / "arguments.txt"
    file.write_text("{a: 1}")
    assert json.loads(cli("repair", str(file)).stdout) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "says"), [(None, "there is no file"), (b"\xff\xfe{", "cannot be read")]
)
def test_a_file_that_cannot_be_read_is_told(cli, tmp_path, content, says):
    file = tmp_path / "arguments.txt"
    if content:
        file.write_bytes(content)
    result = cli("repair", str(file))
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Errno" not in result.stderr
