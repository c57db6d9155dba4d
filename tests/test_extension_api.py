"""What the packages beside the core use of it: the extension API, and a list of what else, which only shrinks.

`python -m tests.test_extension_api` takes out of the list what nobody uses any more.
"""

import ast
from pathlib import Path

from tests.test_architecture import NAMES, SRC, modules, parse_module, short_name

API = {
    "__init__", "calls", "cli.exits", "cli.options", "context", "dialects", "effects", "errors", "events", "invisible",
    "logs", "messages", "plugins", "ports", "records", "tools.function_tool", "tools.settings", "tools.tool",
    "tools.toolset",
}  # fmt: skip
"""The modules that `docs/contributing/extension-api.md` describes."""

LIST = Path(__file__).with_name("beyond_the_extension_api.txt")


def uses_beyond() -> set[str]:
    """Return what other packages import of the core, as `module name`; `*` stands for a whole module."""
    core = {name for name in NAMES if not name.startswith("handrail_")}
    found = set()
    for path in modules():
        if path.relative_to(SRC).parts[0] == "handrail":
            continue
        for node in ast.walk(parse_module(path)):
            match node:
                case ast.ImportFrom(module=str(module), names=names):
                    wanted = [(module, alias.name) for alias in names]
                case ast.Import(names=names):
                    wanted = [(alias.name, "*") for alias in names]
                case _:
                    continue
            for module, name in wanted:
                if module.split(".")[0] == "handrail":
                    home = "__init__" if module == "handrail" else short_name(module)
                    inner = name if home == "__init__" else f"{home}.{name}"
                    found.add((inner, "*") if inner in core else (home, name))
    return {f"{module} {name}" for module, name in found if module not in API}


def listed() -> set[str]:
    return set(LIST.read_text(encoding="utf-8").splitlines())


def test_other_packages_use_the_extension_api_and_what_is_listed():
    assert sorted(uses_beyond() - listed()) == []


def test_the_list_holds_nothing_that_nobody_uses():
    assert sorted(listed() - uses_beyond()) == []


def test_the_page_describes_every_module_of_the_api():
    page = SRC.parent / "docs/contributing/extension-api.md"
    text = page.read_text(encoding="utf-8")
    modules = {"handrail" if each == "__init__" else f"handrail.{each}" for each in API}
    assert [each for each in sorted(modules) if f"| `{each}` |" not in text] == []


if __name__ == "__main__":
    LIST.write_text(
        "".join(f"{row}\n" for row in sorted(listed() & uses_beyond())),
        encoding="utf-8",
    )
