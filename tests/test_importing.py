"""What an import costs, and that what is imported late is sound."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.costs import IMPORTS, import_calls

import handrail
from tests.test_architecture import BROUGHT_BY_USERS

SRC = Path(handrail.__file__).parents[1]
FILES = sorted(str(path.relative_to(SRC)) for path in SRC.rglob("*.py"))


def marked(files):
    """Mark those that are not of the core."""
    return [
        file
        if file.startswith("handrail/")
        else pytest.param(file, marks=pytest.mark.others)
        for file in files
    ]


UNDER_FRAMEWORKS = "handrail_frameworks."


@pytest.mark.parametrize("file", marked(FILES))
def test_every_module_can_be_imported(file):
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if not (name.startswith(UNDER_FRAMEWORKS) and missing in BROUGHT_BY_USERS):
            raise
        pytest.skip(f"{missing} is not installed, and no extra installs it")


@pytest.mark.parametrize("name", handrail.__all__)
def test_every_name_of_the_package_is_where_it_is_said_to_be(name):
    assert getattr(handrail, name) is not None


def imports_of(tree):
    """Return what each imported name stands for, wherever it is imported."""
    named = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                named |= {each.asname or each.name: each.name for each in names}
            case ast.ImportFrom(module=str(module), names=names):
                named |= {
                    each.asname or each.name: f"{module}.{each.name}" for each in names
                }
    return named


def lazy_modules_in(tree):
    """Return what is imported late: name -> module."""
    return {
        node.targets[0].id: ast.literal_eval(node.value.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and ast.unparse(node.value).startswith("_lazy.module(")
    }


TREES = {file: ast.parse((SRC / file).read_text(encoding="utf-8")) for file in FILES}
LAZY = {
    file: (lazy_modules, imports_of(tree))
    for file, tree in TREES.items()
    if (lazy_modules := lazy_modules_in(tree))
}


@pytest.mark.parametrize("file", marked(LAZY))
def test_what_is_imported_late_is_there_and_is_what_type_checkers_see(file):
    late, seen = LAZY[file]
    assert {name: seen.get(name) for name in late} == late
    for module in late.values():
        import_module(module)


def test_importing_stays_within_its_budget():
    """By calls and not by time, which a machine's load changes.

    Measured in November 2026: 1.87 and 2.65 with Python 3.11, 1.92 and 2.78 with Python 3.14.
    """
    pydantic, ours, one_call = (
        import_calls(IMPORTS[name]) for name in ("pydantic", "handrail", "one call")
    )
    is_new = sys.version_info >= (3, 14)
    assert ours <= (2.0 if is_new else 1.9) * pydantic
    assert one_call <= (2.9 if is_new else 2.8) * pydantic


def loaded_by(program):
    """Return the names of the modules that a program has loaded at its end."""
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"]
    return set(
        subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.slow
def test_importing_the_runtime_leaves_to_the_first_tool_what_only_a_tool_needs():
    heavy = {
        "pydantic.main",
        "pydantic.fields",
        "pydantic.json_schema",
        "importlib.metadata",
    }
    assert heavy & loaded_by(IMPORTS["handrail"]) == set()
    # a docstring without sections, or of plain parameters, is read without it
    assert "docstring_parser" not in loaded_by(IMPORTS["one call"])
    # else these names are not those that matter any more
    assert heavy <= loaded_by(IMPORTS["one call"])


def test_one_call_loads_nothing_that_it_does_not_need():
    foreign = {
        "httpx2",
        "opentelemetry",
        "rich",
        "click",
        "sqlite3",
        "starlette",
        "mcp",
        "cloudpickle",
    }
    standard = {"multiprocessing", "ctypes", "pickle", "tomllib", "logging.config"}
    ours = {
        f"handrail.{name}"
        for name in (
            "child",
            "forking",
            "mending",
            "undoing",
            "workflows",
            "testing",
            "linting",
        )
    }
    assert (foreign | standard | ours) & loaded_by(IMPORTS["one call"]) == set()


def test_a_call_in_a_new_sandbox_loads_little_beside_what_its_tool_needs():
    """Each such call starts an interpreter, and pays for every import."""
    loaded = loaded_by("from handrail.workers.worker_main import run_single_call")
    assert "handrail.workers.worker_main" in loaded
    heavy = {"asyncio", "pydantic_core", "jsonschema_rs", "handrail.tools.tool"}
    assert heavy & loaded == set()
