"""`handrail lint`: places, settings, forms of output, exit codes, and what it sets right."""

import json
from pathlib import Path

import pytest

SLOPPY = {
    "tools": [
        {
            "name": "find_order",
            "description": "Look an order up by its number.   ",
            "inputSchema": {
                "type": "dict",
                "properties": {"q": {"type": "str"}},
                "required": ["q"],
            },
            "annotations": {"readOnlyHint": True},
        }
    ]
}
BROKEN = [
    {
        "name": "find_order",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
]


@pytest.fixture
def sloppy(tmp_path, monkeypatch):
    """A file of definitions with warnings, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.json").write_text(
        json.dumps(SLOPPY, indent=2) + "\n", encoding="utf-8"
    )
    return "tools.json"


def test_findings_are_told_by_tool_with_place_and_rewrite(cli, sloppy):
    told = cli("lint", sloppy).stdout
    assert told.startswith("find_order  tools.json:4\n")
    assert "warning  parameter-undocumented" in told
    assert "-> `q`: say what it is" in told
    assert "1 tool: 0 errors, 3 warnings, " in told


def test_notes_are_counted_and_shown_when_asked_for(cli, sloppy):
    assert "when-to-use-missing" not in cli("lint", sloppy).stdout
    assert "note     when-to-use-missing" in cli("lint", sloppy, "--notes").stdout


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--strict",), 1)])
def test_warnings_fail_only_strictly(cli, sloppy, words, code):
    assert cli("lint", sloppy, *words).exit_code == code


def test_what_becomes_no_tool_is_named_in_one_line_and_not_looked_at(cli):
    told = cli("lint", str(Path(__file__).parents[2] / "examples/service.json"))
    assert (told.exit_code, "addPicture" in told.stdout) == (0, False)
    (line,) = told.stderr.splitlines()
    assert "not checked" in line and "addPicture: its body is application/xml" in line


YAML = """
openapi: 3.1.0
info: {title: Shop, version: "1"}
paths:
  /orders:
    post:
      operationId: placeOrder
      parameters: [{name: order_id, in: query, required: true, schema: {type: string}}]
"""


@pytest.mark.parametrize(
    "place",
    ["service.yaml", "openapi:service.yaml", "openapi:service.yaml@localhost:1"],
)
def test_an_openapi_document_in_yaml_is_looked_at_itself_however_it_is_named(
    cli, tmp_path, monkeypatch, place
):
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.yaml").write_text(YAML, encoding="utf-8")
    told = cli("lint", place, "--notes")
    assert told.stdout.startswith("placeOrder  service.yaml")
    assert "description-missing" in told.stdout
    assert "key=" not in told.stdout  # there is no place for it in such a document


def test_errors_fail(cli):
    result = cli("lint", "-", stdin=json.dumps(BROKEN))
    assert result.exit_code == 1
    assert result.stdout.startswith("find_order  line 1\n")
    assert "error  description-missing" in result.stdout


def test_tools_of_python_are_linted_as_well(cli, shop):
    document = json.loads(cli("lint", shop, "--json").stdout)
    rules = {(finding["tool"], finding["rule"]) for finding in document["findings"]}
    assert document["tools"] == 5
    assert ("note", "write-without-key") in rules
    assert document["tokens"]["all"].keys() == {
        "OpenAI",
        "OpenAI Responses",
        "Anthropic",
        "Gemini",
    }


def test_sarif_is_one_document_with_files_and_lines(cli, sloppy):
    log = json.loads(cli("lint", sloppy, "--sarif").stdout)
    result = log["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "tools.json"},
        "region": {"startLine": 4},
    }


def test_costs_are_a_table_of_tools_and_providers(cli, sloppy):
    lines = cli("lint", sloppy, "--costs").stdout.splitlines()
    assert any(line.split()[:3] == ["tool", "OpenAI", "OpenAI"] for line in lines)
    assert any(
        line.startswith("find_order ") and line.split()[1].isdigit() for line in lines
    )


@pytest.mark.parametrize(
    ("file", "head"),
    [("pyproject.toml", "[tool.handrail.lint"), ("handrail.toml", "[lint")],
)
def test_settings_stand_in_a_file_of_the_project(cli, sloppy, tmp_path, file, head):
    (tmp_path / file).write_text(
        f'{head}]\nusers = "zh"\n{head}.ignore.find_order]\nparameter-name-empty = "Everybody says q."\n'
    )
    document = json.loads(cli("lint", sloppy, "--json").stdout)
    assert "language-differs" in {finding["rule"] for finding in document["findings"]}
    assert [(each["rule"], each["reason"]) for each in document["ignored"]] == [
        ("parameter-name-empty", "Everybody says q.")
    ]


def test_the_users_language_can_be_given(cli, sloppy):
    assert "language-differs" in cli("lint", sloppy, "--users", "zh").stdout


def test_what_is_set_right_is_written_in_the_files_own_layout(cli, sloppy, tmp_path):
    result = cli("lint", sloppy, "--fix")
    text = (tmp_path / sloppy).read_text(encoding="utf-8")
    schema = json.loads(text)["tools"][0]["inputSchema"]
    assert "fixed find_order: schema-foreign, text-untidy" in result.stderr
    assert schema == {
        "type": "object",
        "properties": {"q": {"type": "string"}},
        "required": ["q"],
    }
    assert text.startswith('{\n  "tools": [\n')
    assert text.endswith("}\n")
    assert "schema-foreign" not in result.stdout  # what is told is what is left


def test_a_dry_run_writes_nothing(cli, sloppy, tmp_path):
    before = (tmp_path / sloppy).read_bytes()
    result = cli("lint", sloppy, "--fix", "--dry-run")
    assert "would fix find_order" in result.stderr
    assert (tmp_path / sloppy).read_bytes() == before


@pytest.mark.parametrize(("words", "says"), [
    ((), "Name where the tools are"),
    (("absent.json",), "there is no file absent.json"),
    (("-", "--json", "--sarif"), "choose one"),
    (("-", "--fix"), "name a FILE.json"),
    (("tools.json", "--config", "absent.toml"), "absent.toml cannot be read"),
])  # fmt: skip
def test_a_mistake_is_told(cli, sloppy, words, says):
    result = cli("lint", *words, stdin="[]")
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_json_that_holds_no_tools_is_told_with_its_file(cli, sloppy, tmp_path):
    (tmp_path / "other.json").write_text('{"a": 1}')
    result = cli("lint", "other.json")
    assert result.exit_code == 2
    assert "other.json: there are no tools in it" in result.stderr
