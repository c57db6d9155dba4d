"""The folders show the architecture: a module imports only from folders that stand before its own.

`CONTRIBUTING.md` draws the same order for people. Beside `handrail`, which is the core, are its satellites: each
imports the core and no other satellite, and the core names none of them.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import handrail

SRC = Path(handrail.__file__).parents[1]

VALUES = {
    "errors", "calls", "messages", "effects", "events", "context", "records", "invisible",
    "ports", "plugins", "futures", "logs", "process_identity", "surroundings", "_lazy", "_version",
}  # fmt: skip
"""Modules at the top that everybody uses. They import nothing but each other."""

SATELLITES = {
    "handrail_mcp", "handrail_server", "handrail_toolbox", "handrail_openmodels", "handrail_frameworks",
}  # fmt: skip
"""The packages beside the core."""

FLOORS: list[set[str]] = [
    VALUES,
    {"parsing", "guards", "network", "credentials"},
    {"schemas"},
    {"sandboxes"},
    {"tools"},
    {"core"},
    {"audit", "journal", "workers", "dialects", "linting"},
    {"runs", "observers"},
    {"engine", "stores", "models", "selectors", "approvers"},
    {"workflows", "admin", "history", "serving"},
    {"dispatch"},
    {"sync"},
    {"runtime"},
    {"sessions"},
    {"testing"},
    {"pytest_plugin", "cli"},
    SATELLITES,
]
"""From the ground up. A room, which is a folder or a module at the top of the core, or a satellite, uses rooms of lower
floors only."""

FOR_TYPE_CHECKERS = {
    "handrail_frameworks.adopting",
    "handrail_mcp",
    "handrail_openmodels.grammars",
    "handrail_toolbox.openapi",
}
"""What `handrail/__init__.py` imports for type checkers alone: `hr.mcp` and the like are found by entry points, which
they do not read."""

FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
DOORS = {"__init__", "__main__"}
"""The package itself names everything, and `__main__` is the command line."""

MOST_FILES_IN_A_FOLDER = 24
LONGEST_BODY = 60


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def folders() -> list[Path]:
    return sorted({path.parent for path in modules()})


def name_of(path: Path) -> str:
    """Return a module's name: that of the core is without `handrail`, such as `core.batch`."""
    return short_name(".".join(path.relative_to(SRC).with_suffix("").parts))


def short_name(name: str) -> str:
    return name.removeprefix("handrail.").removesuffix(".__init__")


NAMES = {name_of(path) for path in modules()}
PACKAGES = {"handrail", *SATELLITES}


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every module of ours that a module imports, with the line; those inside functions too."""
    for node in ast.walk(parse_module(path)):
        match node:
            case ast.Import(names=names):
                wanted = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                wanted = [f"{module}.{alias.name}" for alias in names]
            case _:
                continue
        for name in wanted:
            if name.split(".")[0] in PACKAGES:
                yield module_of(short_name(name)), node.lineno


def module_of(name: str) -> str:
    """Return the module that a dotted name is, or lies in."""
    while name and name not in NAMES:
        name = name.rpartition(".")[0]
    return name or "__init__"


def room_of(module: str) -> str:
    return module.split(".")[0]


def test_no_package_is_larger_than_its_budget():
    budgets = tomllib.loads((SRC.parent / "budgets.toml").read_text(encoding="utf-8"))
    lines = dict.fromkeys(budgets, 0)
    for path in modules():
        size = path.read_text(encoding="utf-8").count("\n")
        lines[path.relative_to(SRC).parts[0]] += size
        lines["all"] += size
    assert {name: size for name, size in lines.items() if size > budgets[name]} == {}


def test_every_room_has_its_floor():
    assert {room_of(name) for name in NAMES} - DOORS == set(FLOOR_OF)


def test_every_import_points_down():
    wrong = [
        f"{path.relative_to(SRC)}:{line} imports {name}"
        for path in modules()
        for name, line in imports_of(path)
        if not may_import(room_of(name_of(path)), room_of(name))
        and (name_of(path), name)
        not in {("__init__", each) for each in FOR_TYPE_CHECKERS}
    ]
    assert wrong == []


def may_import(here: str, there: str) -> bool:
    if here == there or {here, there} <= VALUES:
        return True
    if here in DOORS:
        return there not in SATELLITES
    if there in DOORS:
        # the demo and the projects of `handrail new` are written as a user writes
        return here == "cli" or here in SATELLITES
    return FLOOR_OF[there] < FLOOR_OF[here]


def test_the_core_names_no_satellite_but_for_type_checkers():
    pattern = re.compile("|".join(SATELLITES))
    naming = {
        name_of(path): len(found)
        for path in (SRC / "handrail").rglob("*.py")
        if (found := pattern.findall(path.read_text(encoding="utf-8")))
    }
    assert naming == {"__init__": len(FOR_TYPE_CHECKERS)}


def test_no_modules_import_one_another_in_a_circle():
    uses = {name_of(path): {name for name, _ in imports_of(path)} for path in modules()}
    # A package hands on names of its own modules: what lies in its folder may use another file of that folder.
    for name in uses:
        package = name.rpartition(".")[0] or "__init__"
        uses[name] -= {name, package}
    while leaves := {name for name, used in uses.items() if not used & uses.keys()}:
        uses = {name: used for name, used in uses.items() if name not in leaves}
    assert sorted(uses) == []


def test_no_import_is_relative():
    relative = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_no_folder_holds_more_files_than_a_reader_can_take_in():
    crowded = {
        str(folder): len(found)
        for folder in folders()
        if len(found := [*folder.glob("*.py")]) > MOST_FILES_IN_A_FOLDER
    }
    assert crowded == {}


OF_A_DISTRIBUTION = {
    "yaml": "pyyaml",
    "opentelemetry": "opentelemetry-api",
    "jsonschema_rs": "jsonschema-rs",
    "docstring_parser": "docstring-parser",
    "pydantic_ai": "pydantic-ai-slim",
    "agents": "openai-agents",
    "openai": "openai-agents",  # whose types are those of the client that it brings
}
PARTS_OF_A_PACKAGE = {"langgraph-checkpoint-sqlite", "componentize-py"}
"""Distributions that are imported as a part of another one's package, or run as a program."""
LOADED_BY_OTHERS = {"pytest", "hypothesis", "cloudpickle", "supervisor"}
"""The plug-in of pytest is loaded by pytest, contracts by tests; what only cloudpickle can send goes through it
where it is installed; the launcher of servers, a program of its own, finds our `supervisor` beside it."""
BROUGHT_BY_USERS = {
    "agent_framework",
    "agno",
    "aiohttp",
    "google",
    "httpx",
    "llama_index",
    "requests",
    "strands",
    "urllib3",
}
"""Frameworks that no extra installs: whoever asks for their adapter has them."""


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    told = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = told["optional-dependencies"]
    of_users = [
        each
        for name, each in extras.items()
        if name not in ("all", "test", "dev", "docs", "agentdojo")
    ]
    listed = [*told["dependencies"], *(each for extra in of_users for each in extra)]
    declared = {re.match(r"[A-Za-z0-9_.\-]+", each)[0] for each in listed}
    roots = {root for path in modules() for root in roots_of(path)} - {
        *sys.stdlib_module_names,
        *PACKAGES,
    }
    imported = {
        OF_A_DISTRIBUTION.get(root, root.replace("_", "-"))
        for root in roots - LOADED_BY_OTHERS - BROUGHT_BY_USERS
    }
    assert imported == declared - PARTS_OF_A_PACKAGE


def roots_of(path: Path) -> list[str]:
    """Return the first part of every name that a module imports."""
    nodes = list(ast.walk(parse_module(path)))
    whole = [
        alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    return [
        name.split(".")[0]
        for name in (
            *whole,
            *(node.module for node in nodes if isinstance(node, ast.ImportFrom)),
        )
    ]


def test_values_need_only_the_standard_library_and_what_values_are_made_of():
    foreign = [
        f"{name_of(path)}: {root}"
        for path in modules()
        if name_of(path).partition(".")[0] in VALUES
        for root in roots_of(path)
        if root not in {*sys.stdlib_module_names, "handrail", "msgspec"}
    ]
    assert foreign == []


def test_the_time_comes_from_one_clock_that_a_simulation_moves():
    # Programs that run without us, or in a process of their own; and what only measures or formats.
    exempt = {
        "surroundings.clock",
        "sandboxes.supervisor",
        "handrail_frameworks.bench.play",
        "handrail_frameworks.bench.scenarios",
        "handrail_toolbox.sandboxes.python_guest.program",
    }
    measures = {"perf_counter", "process_time", "time_ns", "gmtime"}
    others = [
        name_of(path)
        for path in modules()
        if name_of(path) not in exempt
        for node in ast.walk(parse_module(path))
        if (
            isinstance(node, ast.Import)
            and any(each.name == "time" for each in node.names)
        )
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and not {each.name for each in node.names} <= measures
        )
    ]
    assert others == []


def test_what_decides_is_not_async():
    """Sync and async are one implementation: what both drivers share has no `await`."""
    shared = {
        *VALUES,
        "parsing",
        "schemas",
        "tools",
        "core",
        "audit",
        "journal",
        "dialects",
    }
    # `ports` says what others write; `paging` reads a user's async generator, which nothing else can; `futures` brings
    # what threads answer to a loop.
    exempt = {"ports", "tools.paging", "futures"}
    coroutines = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in modules()
        if room_of(name_of(path)) in shared and name_of(path) not in exempt
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    ]
    assert coroutines == []


NAMED_LIKE_THE_STANDARD_LIBRARY = {"selectors"}
"""`handrail.selectors` is a fixed public name. Imports are absolute, and no folder of ours is on the path."""


def test_no_file_and_no_folder_is_named_like_a_standard_module():
    names = {name_of(path).rpartition(".")[2] for path in modules()}
    assert names & set(sys.stdlib_module_names) == NAMED_LIKE_THE_STANDARD_LIBRARY


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path.relative_to(SRC)}:{node.lineno} {node.name}: {length}"
        for path in modules()
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := body_lines(node)) > LONGEST_BODY
    ]
    assert long == []


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_every_public_name_has_a_docstring():
    silent = []
    for path in modules():
        if name_of(path) in DOORS:
            continue
        tree = parse_module(path)
        if not ast.get_docstring(tree):
            silent.append(f"{path.relative_to(SRC)}")
        for node in ast.iter_child_nodes(tree):
            is_named = isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            )
            if is_named and not (
                node.name.startswith("_")
                or ast.get_docstring(node)
                or is_overload(node)
            ):
                silent.append(f"{path.relative_to(SRC)}:{node.lineno} {node.name}")
    assert silent == []


def is_overload(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == "overload"
        for each in getattr(node, "decorator_list", ())
    )
