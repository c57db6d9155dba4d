"""Tools from files and modules that somebody else wrote, in whatever state they are."""

import sys

import pytest

from handrail.cli.loading import tools_from
from handrail.errors import ConfigError, DuplicateToolError, SetupError


@pytest.fixture
def file(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


TWO = """
import handrail as hr

@hr.tool(effect="read")
def look(place: str) -> str:
    "Look."

@hr.tool
def touch(place: str) -> str:
    "Touch."

def bare(place: str) -> str:
    "Nobody decorated this."

both = hr.Toolset([look, touch])
again = look
some = [bare]
"""


def names(tools):
    return [tool.name for tool in tools]


def test_every_tool_at_the_top_level_is_loaded_once_and_bare_functions_are_not(file):
    assert names(tools_from([file(TWO)])) == ["look", "touch"]


@pytest.mark.parametrize(("attribute", "expected"), [
    ("look", ["look"]),            # a tool
    ("both", ["look", "touch"]),   # a toolset
    ("some", ["bare"]),            # a list
    ("bare", ["bare"]),            # a bare function, because it is named
])  # fmt: skip
def test_one_attribute_can_be_named(file, attribute, expected):
    assert names(tools_from([f"{file(TWO)}:{attribute}"])) == expected


def test_a_module_is_found_from_where_one_stands(file, monkeypatch, tmp_path):
    file(TWO, "company_tools.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert names(tools_from(["company_tools:touch"])) == ["touch"]


def test_a_file_finds_its_neighbours(file):
    file("PLACE = 'here'", "neighbour_of_mine.py")
    path = file(
        "from neighbour_of_mine import PLACE\nimport handrail as hr\n@hr.tool\ndef where() -> str:\n    'Say.'"
    )
    assert names(tools_from([path])) == ["where"]


def test_several_places_make_one_set(file):
    other = file(
        "import handrail as hr\n@hr.tool\ndef other() -> str:\n    'Other.'", "other.py"
    )
    assert names(tools_from([file(TWO), other])) == ["look", "touch", "other"]


@pytest.mark.parametrize(("text", "says"), [
    # does not parse
    ("def broken(:\n", "line 1: "),
    ("x = 1\nraise RuntimeError('no database')", "RuntimeError: no database (mine.py, line 2)"),
    # a script without a guard
    ("raise SystemExit(3)", "SystemExit: 3 (mine.py, line 1)"),
    ("import there_is_no_such_module", "no module there_is_no_such_module (mine.py, line 1)"),
    # nothing in it
    ("x = 1", "decorate functions with @tool"),
    ("def look(place: str): ...", "decorate what the model may call with @tool (look)"),
    # a function that makes the tools, and their list
    ("import handrail as hr\ndef make():\n    def f() -> int: ...\n    return [hr.tool(f)]\nTOOLS = make()",
     "TOOLS is a list: make it a hr.Toolset(TOOLS), or name it after a colon"),
    ("import handrail as hr\n@hr.tool\ndef f(x): ...", "parameter `x` has no type hint"),
    ("import handrail as hr\nfrom socket import socket\n@hr.tool\ndef f(x: socket): ...", "has no JSON form"),
    ("import handrail as hr\n@hr.tool(efect='read')\ndef f(x: int): ...", "Did you mean `effect`?"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_in_a_sentence_with_its_place(
    file, text, says
):
    with pytest.raises(SetupError) as told:
        tools_from([file(text)])
    assert says in str(told.value)


def test_two_tools_of_one_name_are_refused(file):
    other = file(
        "import handrail as hr\n@hr.tool\ndef look() -> str:\n    'Other.'", "other.py"
    )
    with pytest.raises(DuplicateToolError, match="'look'"):
        tools_from([file(TWO), other])


@pytest.mark.parametrize(("place", "says"), [
    ("nowhere/tools.py", "there is no file nowhere/tools.py"),
    ("no_such_package", "no module no_such_package"),
    ("json:nothing", "json has no 'nothing'"),
    ("json", "no tools in json"),
    ("/", "/ is a directory"),
    ("..", ".. is a directory"),
    ("shop.yaml", "openapi:shop.yaml"),
    # a document of a service, most likely
    ("shop.json", "openapi:shop.json"),
    ("handrail.approvers", "name one of its modules with it: .*terminal"),
])  # fmt: skip
def test_a_place_that_is_none_is_told(place, says):
    with pytest.raises(ConfigError, match=says):
        tools_from([place])


NOTES = """
import handrail as hr
from handrail.tools.function_tool import FunctionTool  # a class, and not of this file

class Base(hr.BaseTool):
    "A helper without `run`."

class TeamNotes(Base):
    name, effect = "notes", "read"
    def run(self, place: str) -> str:
        "Read the notes."
"""


def test_a_class_of_which_no_tool_is_made_is_told(file):
    with pytest.raises(
        ConfigError,
        match=r"`TeamNotes` is a class of tools; .*: team_notes = TeamNotes\(\)",
    ):
        tools_from([file(NOTES)])


@pytest.mark.parametrize("place", ["", ":TeamTools"])
def test_a_class_of_toolsets_is_told_alike(file, place):
    source = 'import handrail as hr\nclass TeamTools(hr.Toolset):\n    """Ours."""\n'
    with pytest.raises(
        ConfigError,
        match=r"`TeamTools` is a class of tools; .*: team_tools = TeamTools\(\)",
    ):
        tools_from([file(source) + place])


@pytest.mark.others
def test_a_class_that_must_be_told_something_is_shown_with_room_for_it():
    with pytest.raises(ConfigError, match=r"files = Files\(\.\.\.\)"):
        tools_from(["handrail_toolbox.files"])


@pytest.mark.parametrize(
    "made", ["notes = TeamNotes()", "everything = hr.Toolset([TeamNotes()])"]
)
def test_a_class_of_which_a_tool_is_made_is_fine(file, made):
    assert names(tools_from([file(NOTES + made)])) == ["notes"]


@pytest.mark.parametrize("place", ["server.log", "server.log:tools", "server.json"])
@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_no_python_is_refused_and_nothing_is_executed(
    tmp_path, monkeypatch, place, is_there
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text("raise SystemExit('executed')")
    if is_there:
        (tmp_path / place.partition(":")[0]).write_text("a line")
    with pytest.raises(ConfigError) as caught:
        tools_from([place])
    assert "executed" not in str(caught.value)
    assert "is not a Python file" in str(caught.value) or "no module" in str(
        caught.value
    )
