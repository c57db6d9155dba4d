"""The reading order of the code is its import order: a module imports only names that stand before its own."""

import ast
import re
from pathlib import Path

import handrail

SRC = Path(handrail.__file__).parent

# fmt: off
NOUNS = [
    "cached", "late", "errors", "calls", "messages", "unseen", "effects", "events", "context", "owners", "records",
    "chain", "wakeups", "ports", "logkeys", "plugins", "isolation", "logs", "iterators", "reimports",
    "confinement", "seccomp",
]
# fmt: on
# fmt: off
DESCRIBING = [
    "docstrings", "names", "strictjson", "subschemas", "guards", "violations", "faults", "tidying", "foreign", "schema",
    "subsets", "portability", "operations", "validation", "keys", "scopes", "expressions", "limits", "pages",
    "declarations", "tools", "toolset", "linting", "sources",
]
# fmt: on
# fmt: off
DECIDING = [
    "mending", "jsontext", "policy", "budgets", "repeats", "planning", "locks", "retries", "shaping", "redaction",
    "placeholders", "lifecycle", "batch", "following", "flow", "history", "structured", "conversation", "journal",
    "audit",
]
# fmt: on
PERFORMING = [
    "dialects",
    "forks",
    "workers",
    "child",
    "processes",
    "boxes",
    "reading",
    "runs",
    "recording",
    "services",
    "showing",
    "patience",
    "sessions",
    "approvals",
    "decisions",
    "asking",
    "undoing",
    "forking",
    "leases",
    "unrecorded",
    "host",
    "resuming",
    "nested",
    "grounds",
    "attempts",
    "belated",
    "carrier",
    "runners",
    "workflows",
    "runtime",
    "sync",
    "evaluation",
    "checklist",
    "testing",
    "crashes",
    "cassettes",
    "pytest_plugin",
]
PROGRAMS = ["cli"]
ORDER = [*NOUNS, *DESCRIBING, *DECIDING, *PERFORMING, *PROGRAMS]

PLUGINS = {"models", "stores", "approvers", "observers", "selectors", "sandboxes", "toolbox"}
PLUGINS_MAY_USE = {*NOUNS, "dialects", "retries"}
SELECTORS_MAY_USE = {*NOUNS, "names", "tools", "toolset"}
APPROVERS_MAY_USE = {*PLUGINS_MAY_USE, "validation"}  # what a person edits is held to the tool's schema
TOOLBOX_MAY_USE = {*NOUNS, *DESCRIBING, "sandboxes", "selectors"}

# fmt: off
MAY_USE = {
    **dict.fromkeys(PLUGINS, PLUGINS_MAY_USE), "selectors": SELECTORS_MAY_USE, "toolbox": TOOLBOX_MAY_USE,
    "approvers": APPROVERS_MAY_USE,
}
# fmt: on

LONGEST_BODY = 60


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Return (first name below `handrail`, line) for every import, those inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found += [(alias.name, node.lineno) for alias in names]
            case ast.ImportFrom(module="handrail", names=names):
                found += [(alias.name, node.lineno) for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append((module, node.lineno))
            case ast.ImportFrom(level=level) if level:
                found.append((f"relative import in {path.name}", node.lineno))
    return [(name.removeprefix("handrail.").split(".")[0], line) for name, line in found]


def home_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def test_every_module_has_its_place_in_the_reading_order():
    homes = {home_of(path) for path in modules()} - {"__init__", "__main__"}
    assert homes == {*ORDER, *PLUGINS} & homes


def test_every_import_points_back_in_reading_order():
    wrong = []
    for path in modules():
        here = home_of(path)
        if here in ("__init__", "__main__"):
            continue  # the package's own door names everything
        before = MAY_USE.get(here) or set(ORDER[: ORDER.index(here)])
        for name, line in imports_of(path):
            if here in PROGRAMS:
                continue  # programs come last: they may name everything
            if name in {*ORDER, *PLUGINS} and name != here and name not in before:
                wrong.append(f"{path.relative_to(SRC)}:{line} imports {name}")
            if name.startswith("relative import"):
                wrong.append(f"{path.relative_to(SRC)}:{line}: {name}")
    assert wrong == []


OF_A_DISTRIBUTION = {"yaml": "pyyaml", "jsonschema_rs": "jsonschema-rs", "docstring_parser": "docstring-parser"}
LOADED_BY_OTHERS = {"pytest", "cloudpickle"}
"""The plug-in of pytest is loaded by pytest; what only cloudpickle can send goes through it where it is installed."""


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    import sys
    import tomllib

    told = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = told["optional-dependencies"]
    listed = [*told["dependencies"], *(each for name in extras if name not in ("test", "dev") for each in extras[name])]
    declared = {re.match(r"[A-Za-z0-9_.\-]+", each)[0] for each in listed}
    roots = {root for path in modules() for root in roots_of(path)} - {*sys.stdlib_module_names, "handrail"}
    imported = {OF_A_DISTRIBUTION.get(root, root.replace("_", "-")) for root in roots - LOADED_BY_OTHERS}
    assert imported == declared


def roots_of(path: Path) -> list[str]:
    """Return the first part of every name that a module imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [
        name.split(".")[0] for name in (*whole, *(node.module for node in nodes if isinstance(node, ast.ImportFrom)))
    ]


def test_the_nouns_need_only_the_standard_library_and_what_values_are_made_of():
    import sys

    foreign = [
        f"{name}:{line} imports {imported}"
        for name in NOUNS
        for imported, line in imports_of(SRC / f"{name}.py")
        if imported not in {*sys.stdlib_module_names, *NOUNS, "msgspec"}
    ]
    assert foreign == []


def test_no_module_of_the_core_is_async():
    """Sync and async are one implementation: what both drivers share has no `await`."""
    # `ports` says what others write; `pages` reads a user's async generator, which nothing else can; `wakeups` brings
    # what threads answer to a loop.
    exempt = {"ports", "pages", "wakeups"}
    core = {*NOUNS, *DESCRIBING, *DECIDING, "dialects", "attempts", "belated", "carrier"} - exempt
    coroutines = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in modules()
        if home_of(path) in core
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    ]
    assert coroutines == []


def test_no_module_is_named_like_one_of_the_standard_library():
    import sys

    # `http` and `json` inside a package do not shadow: imports are absolute, and no package directory is on the path.
    names = {path.stem for path in SRC.glob("*.py")}
    assert names & set(sys.stdlib_module_names) == set()


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path.relative_to(SRC)}:{node.lineno} {node.name}: {length}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (length := body_lines(node)) > LONGEST_BODY
    ]
    assert long == []


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_every_public_name_has_a_docstring():
    silent = []
    for path in modules():
        if home_of(path) in ("__init__", "__main__"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(tree):
            silent.append(f"{path.relative_to(SRC)}")
        for node in ast.iter_child_nodes(tree):
            is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_named and not (node.name.startswith("_") or ast.get_docstring(node) or is_overload(node)):
                silent.append(f"{path.relative_to(SRC)}:{node.lineno} {node.name}")
    assert silent == []


def is_overload(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in getattr(node, "decorator_list", ()))
