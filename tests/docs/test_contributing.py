"""What `CONTRIBUTING.md` says is true: the picture of the folders, and each checklist for what exists today."""

import re
from pathlib import Path

import pytest
import yaml

from docs import build
from handrail import linting, plugins
from handrail.cli import list_commands
from handrail.dialects import WireDialect, dialect
from handrail.errors import Code
from handrail.sandboxes.builtin import KNOWN
from handrail_openmodels import parts
from tests.test_architecture import FLOORS, SATELLITES, VALUES

ROOT = Path(__file__).parents[2]
SRC, TESTS = ROOT / "src/handrail", ROOT / "tests"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHECKLISTS = dict(
    re.findall(r"^### Add an? ([a-z ]+)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
)
KINDS = [
    "wire",
    "prompt family",
    "store",
    "sandbox",
    "tool",
    "lint rule",
    "command",
    "error code",
]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def home_of(kind, name):
    """Return the module in which a part of ours is, as a path."""
    places = {**plugins._OURS[kind], **plugins.list_added(kind)}
    module = places[name].partition(":")[0]
    return ROOT / "src" / (module.replace(".", "/") + ".py")


def test_the_picture_has_the_floors_of_the_architecture():
    drawn = PAGE.partition("<!-- floors -->")[2].partition("<!-- end of floors -->")[0]
    floors = [
        line[:49].split()
        for line in drawn.splitlines()
        if line and not line.startswith("```")
    ]
    names = {"values": VALUES, "satellites": SATELLITES}
    wanted = [
        next(([name] for name, rooms in names.items() if rooms == floor), floor)
        for floor in reversed(FLOORS)
    ]
    assert list(map(sorted, floors)) == list(map(sorted, wanted))


def test_there_is_a_checklist_for_whatever_is_added_often():
    assert list(CHECKLISTS) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_that_a_checklist_names_is_there(kind):
    named = re.findall(r"`((?:src|tests|docs)/[^`\s]+)`", CHECKLISTS[kind])
    assert named
    assert [
        path for path in named if "NAME" not in path and not (ROOT / path).exists()
    ] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_that_a_checklist_names_is_there(kind):
    names = re.findall(r"`(_?[A-Z][A-Z_]{3,})`", CHECKLISTS[kind])
    files = re.findall(r"`(src/[^`\s]+\.py)`", CHECKLISTS[kind])
    sources = "".join(read(path) for path in files if "NAME" not in path)
    is_set = r"^{}\b.*[=:]"
    of_wires = {"DIALECT", "DIALECTS"}  # which the new module has
    assert [
        each
        for each in names
        if each not in of_wires and not re.search(is_set.format(each), sources, re.M)
    ] == []


WIRES = [
    name for name in plugins._OURS["dialects"] if isinstance(dialect(name), WireDialect)
]


@pytest.mark.parametrize("name", WIRES)
def test_every_wire_fulfils_its_checklist(name):
    module = home_of("dialects", name)
    assert module.parent == SRC / "dialects/wires"
    tests = read(TESTS / f"dialects/wires/test_{module.stem}.py")
    assert re.search(r"\((Server|recorded\.Recorded)Contract\):", tests)
    assert f"\n### {name}\n" in read("docs/reference/dialects.md")


@pytest.mark.parametrize("name", [*parts.PROMPTS, *parts.UNPROMPTED])
def test_every_prompt_fulfils_its_checklist(name):
    assert home_of("dialects", name).parent == ROOT / "src/handrail_openmodels/prompts"
    assert f"\n### {name}\n" in read("docs/reference/dialects.md")


@pytest.mark.parametrize("name", plugins._OURS["stores"])
def test_every_store_fulfils_its_checklist(name):
    module = home_of("stores", name)
    tests = read(TESTS / f"stores/test_{module.stem}.py")
    assert re.search(r"\((Durable|Store)Contract\b", tests)


def test_every_sandbox_fulfils_its_checklist():
    import handrail.sandboxes

    assert set(KNOWN) == set(plugins._OURS["sandboxes"])
    assert [
        name for name in KNOWN if f"| `{name}` |" not in handrail.sandboxes.__doc__
    ] == []
    files = {path.stem for path in (ROOT / "src").glob("*/sandboxes/*.py")}
    assert set(KNOWN) - files == set()


def test_every_lint_rule_fulfils_its_checklist():
    page = read("docs/reference/lint.md")
    assert [name for name in linting.RULES if f"\n### {name}\n" not in page] == []
    assert [
        rule.id for rule in linting.RULES.values() if not (rule.bad and rule.good)
    ] == []


@pytest.mark.parametrize("name", list_commands())
def test_every_command_fulfils_its_checklist(name):
    added = plugins.list_added("commands").get(name, "handrail.cli.commands.")
    folder = ROOT / "src" / added.rpartition(".")[0].replace(".", "/")
    assert (folder / f"{name}.py").exists() or (folder / name).is_dir()
    tests = "".join(
        path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")
    )
    assert re.search(rf'"{name}"', tests), f"no test runs `handrail {name}`"


@pytest.mark.parametrize("code", Code)
def test_every_error_code_fulfils_its_checklist(code):
    assert f"| `{code}` |" in read("docs/reference/errors.md")
    tests = "".join(
        path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")
    )
    assert f'"{code}"' in tests or f"Code.{code}" in tests, (
        "no test shows how a call comes by it"
    )


def test_security_and_contributing_are_pages_of_the_site():
    build.stage()
    text = (build.STAGED / "contributing/README.md").read_text(encoding="utf-8")
    assert "](versioning.md)" in text
    assert "](security.md)" in text


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("path", [*WORKFLOWS, *FORMS], ids=lambda path: path.name)
def test_what_github_reads_is_yaml(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_a_job_says_more(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {
        "contents": "read"
    }


def test_ci_runs_every_supported_python_by_the_command_of_this_repository():
    job = yaml.safe_load(
        (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    )["jobs"]["test"]
    declared = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"', read("pyproject.toml")
    )
    assert job["strategy"]["matrix"]["python"] == declared
    assert any(step.get("run") == ".ci/run" for step in job["steps"])
