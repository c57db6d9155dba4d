"""Build the site: `python -m docs.build` writes it to `build/site`.

The pages are staged in `build/docs`, so that what is generated never lies beside what is written:

- a link to a file outside `docs/` becomes a link to that file on GitHub, and one to a folder goes to its index;
- the API reference gets a directive for each public name, which mkdocstrings turns into signature and docstring;
- tables that no docstring holds (settings of a tool, commands, environment variables) are made from the code.

Then Zensical builds `build/docs` strictly: a link that leads nowhere fails the build.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import handrail as hr
from handrail import cli, plugins
from handrail.models.providers import PROVIDERS
from handrail.tools.settings import GROUPS
from handrail.tools.tool import BaseTool

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
STAGED = ROOT / "build/docs"
FROM_THE_ROOT = {
    ROOT / "CONTRIBUTING.md": "contributing/README.md",
    ROOT / "SECURITY.md": "contributing/security.md",
}
"""Pages that GitHub wants in the root, and their places in the site."""
CONFIGURATION = ROOT / "mkdocs.yml"

REFERENCE = {
    "runtime": (
        "Runtimes and runs",
        "Runtime SyncRuntime Session SyncSession Run Budget Backoff Options Form agent_tool "
        "Workflow SyncWorkflow Require Forbid Step",
    ),
    "tools": (
        "Tools",
        "tool FunctionTool BaseTool Toolset Write Limits Sandbox Sends Then Context Injected Page Media openapi lint",
    ),
    "approval": (
        "Policy and approval",
        "Policy Rule AskHuman Approval ApprovalRequest Found NotFound Unknown",
    ),
    "messages": (
        "Messages and calls",
        "ToolCall ToolResult UserMessage AssistantMessage SystemMessage ToolMessage Turn Usage dialect "
        "messages_as_json messages_from_json",
    ),
    "grammars": ("Grammars", "grammar"),
    "training": ("Training data", ""),
    "errors": ("Errors", ""),
    "events": ("Events", ""),
    "ports": ("Ports", ""),
    "testing": ("Testing", ""),
    "adapters": ("Under other frameworks", ""),
    "mcp": ("Model Context Protocol", ""),
    "server": ("The server", ""),
    "endpoints": ("Endpoints", ""),
    "network": (
        "Network and secrets",
        "http_client async_http_client Egress Secret",
    ),
    "observers": ("Traces and marks", ""),
    "parts": ("Guards, planning, JSON text", ""),
}
"""The pages of the API reference: title, and the names of `handrail` that each describes."""

MODULES = {
    "grammars": [
        "handrail_openmodels.grammars.forms.Grammar",
        "handrail_openmodels.grammars.masks.Mask",
    ],
    "errors": ["handrail.errors"],
    "events": ["handrail.events"],
    "ports": [
        "handrail.ports",
        "handrail.dialects",
        "handrail.selectors",
        "handrail.dispatch.port",
        "handrail.dispatch.choice",
        "handrail.dispatch.worker.Worker",
    ],
    "training": [
        "handrail_openmodels.training.exporting",
        "handrail_openmodels.training.selection.Selection",
        "handrail_openmodels.training.examples.Example",
        "handrail_openmodels.training.examples.Pair",
        "handrail_openmodels.training.forms",
    ],
    "testing": ["handrail.testing", "handrail.testing.contracts"],
    "approval": [
        "handrail.core.preview.Preview",
        "handrail.admin",
        "handrail_toolbox.notifying",
    ],
    "adapters": [
        "handrail_frameworks.adopting",
        "handrail_frameworks.langchain",
        "handrail_frameworks.pydantic_ai",
        "handrail_frameworks.pydantic_ai_events",
        "handrail_frameworks.openai_agents",
        "handrail_frameworks.llamaindex",
    ],
    "mcp": [
        "handrail_mcp",
        "handrail_mcp.serving",
        "handrail_mcp.notices.Leave",
        "handrail_mcp.callers.Caller",
        "handrail_mcp.tokens.Tokens",
    ],
    "server": [
        "handrail_server.deployment.Deployment",
        "handrail_server.deployment.RunDefaults",
        "handrail_server.app.create_app",
        "handrail_server.access.Access",
        "handrail_server.access.Proxies",
        "handrail_server.running.serve",
        "handrail.serving.tokens.BearerTokens",
    ],
    "endpoints": [
        "handrail_server.endpoints.Endpoints",
        "handrail_server.endpoints.driving.Requester",
    ],
    "network": [
        "handrail_toolbox.network.httpx",
        "handrail_toolbox.network.requests",
        "handrail_toolbox.network.aiohttp",
        "handrail.network.proxy",
    ],
    "observers": [
        "handrail.observers.otel.Tracing",
        "handrail.context.trace_headers",
        "handrail.dialects.boundaries.Boundaries",
    ],
    "parts": ["handrail.guards", "handrail.core.planning", "handrail.parsing.jsontext"],
}
"""Whole modules that a page describes, public names and all."""

PUBLIC = sorted([*hr.__all__, *plugins.list_added("names")], key=str.lower)
"""The public names of `handrail`, with those that the other packages add."""

OPERATION_REGION = re.compile(
    r"(?<=<!-- operations -->\n).*?(?=<!-- end of operations -->)", re.S
)
PROVIDER_REGION = re.compile(
    r"(?<=<!-- providers -->\n).*?(?=<!-- end of providers -->)", re.S
)
"""The part of `reference/configuration.md` that lists the providers."""

_LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
_FENCED = re.compile(r"^(`{3,}).*?^\1$", re.S | re.M)


def main() -> int:
    """Stage the pages and build them; return the exit code of the build."""
    stage()
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--config-file",
        str(CONFIGURATION),
    ]
    return subprocess.run(command, check=False, cwd=ROOT).returncode


def stage() -> None:
    """Write every page of the site to `build/docs`."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for source in (
        path
        for path in DOCS.rglob("*")
        if path.suffix in (".md", ".svg", ".png", ".css")
    ):
        target = STAGED / source.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(with_links_of_the_site(source), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    for source, path in FROM_THE_ROOT.items():
        (STAGED / path).write_text(with_links_of_the_site(source), encoding="utf-8")
    for path, text in generated_pages().items():
        target = STAGED / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def repository() -> str:
    """Return the address of the repository, as `pyproject.toml` has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return str(project["urls"]["Repository"])


def place_of(path: Path) -> str:
    """Return the place of a file in the site; empty if it is no page."""
    if path in FROM_THE_ROOT:
        return FROM_THE_ROOT[path]
    if path.is_relative_to(DOCS):
        place = path.relative_to(DOCS).as_posix()
        return f"{place}/README.md" if path.is_dir() else place
    return ""


def with_links_of_the_site(page: Path) -> str:
    """Return a page whose links lead to pages of the site, or to GitHub."""
    folder = Path(place_of(page)).parent

    def rewrite(link: re.Match[str]) -> str:
        target = (page.parent / link["path"]).resolve()
        anchor = link["anchor"] or ""
        if not target.exists():
            return link[0]  # a generated page; the build fails if there is none
        if place := place_of(target):
            return f"]({os.path.relpath(place, folder)}{anchor})"
        return (
            f"]({repository()}/blob/main/{target.relative_to(ROOT).as_posix()}{anchor})"
        )

    text = page.read_text(encoding="utf-8")
    pieces = []
    end = 0
    for block in _FENCED.finditer(text):  # a code block keeps what looks like a link
        pieces += [_LINK.sub(rewrite, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*pieces, _LINK.sub(rewrite, text[end:])])


def generated_pages() -> dict[str, str]:
    """Return the pages that are made from the code, by their path in the site."""
    pages = {f"reference/api/{page}.md": reference_page(page) for page in REFERENCE}
    pages["reference/api/README.md"] = reference_index()
    pages["reference/tool-settings.md"] = tool_settings()
    pages["reference/command-line.md"] = command_line()
    pages["decisions/README.md"] = decisions()
    return pages


# ------------------------------------------------------------------------------------------------- the API reference


def home_of(name: str) -> str:
    """Return the full name of a public name of `handrail`, where its code is."""
    value = getattr(hr, name)
    if inspect.ismodule(value):
        return value.__name__
    return f"{value.__module__}.{name}"


def described_names(page: str) -> list[str]:
    """Return the full names that a page of the reference describes."""
    _, names = REFERENCE[page]
    return [*map(home_of, names.split()), *MODULES.get(page, [])]


def reference_page(page: str) -> str:
    """Return a page with one directive for each name."""
    title, _ = REFERENCE[page]
    return f"# {title}\n\n" + "\n".join(
        f"::: {name}\n" for name in described_names(page)
    )


def page_of(name: str) -> str:
    """Return the page of the reference that describes a name of `handrail`; empty if none does."""
    home = home_of(name)
    for page in REFERENCE:
        names = described_names(page)
        if home in names or home.rpartition(".")[0] in names:
            return page
    return ""


def reference_index() -> str:
    """Return the table of all public names."""
    rows = [
        f"| [`hr.{name}`]({page_of(name)}.md#{home_of(name)}) | {first_sentence(getattr(hr, name))} |"
        for name in PUBLIC
    ]
    head = (
        "# Every public name\n\n`hr` is `import handrail as hr`. A name that is not here may change in any version.\n\n"
        "| name | what it is |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def first_sentence(value: Any) -> str:
    """Return the first paragraph of a docstring on one line, fit for a table."""
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return in_a_cell(paragraph)


def in_a_cell(text: str) -> str:
    """Return a text on one line in which nothing ends a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


# ---------------------------------------------------------------------------------------------- made from other code


def settings_of(declaring: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default and meaning of each setting, in the order in which `BaseTool` or a group lists them."""
    tree = ast.parse(inspect.getsource(declaring)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node, after in zip(tree.body, tree.body[1:], strict=False):
        if not (isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr)):
            continue
        if isinstance(node.target, ast.Name) and isinstance(after.value, ast.Constant):
            name = node.target.id
            kind = re.sub(
                r"Annotated\[(.*), [A-Z_]+\]", r"\1", ast.unparse(node.annotation)
            )
            default = repr(getattr(declaring, name)) if node.value else ""
            yield name, kind.replace(" | ", " or "), default, str(after.value.value)


def tool_settings() -> str:
    """Return the page of what a tool can declare."""
    page = (
        "# Settings of a tool\n\nKeyword arguments of [`@hr.tool`](api/tools.md) and `hr.FunctionTool`, "
        "class attributes of a `hr.BaseTool`. A setting that cannot be meant is refused when the tool is defined.\n"
    )
    for declaring in (BaseTool, *GROUPS.values()):
        if declaring is not BaseTool:
            page += f"\n## `hr.{declaring.__name__}`\n\n{declaring.__doc__}\n"
        page += "\n| setting | type | default | meaning |\n|---|---|---|---|\n"
        for name, kind, default, meaning in settings_of(declaring):
            shown = f"`{in_a_cell(default)}`" if default else ""
            page += (
                f"| `{name}` | `{in_a_cell(kind)}` | {shown} | {in_a_cell(meaning)} |\n"
            )
    return page


def commands_of(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all commands below it, each with its context."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands_of(
                    below, click.Context(below, info_name=name, parent=context)
                )


def command_line() -> str:
    """Return the page of all commands, as their `--help` has it."""
    sections = [
        "# The command line\n\nEvery command with its arguments and options, as `--help` prints them.\n"
    ]
    main_command = cli.main
    assert isinstance(main_command, click.Command)
    for command, context in commands_of(
        main_command,
        click.Context(main_command, info_name="handrail", max_content_width=100),
    ):
        context.terminal_width = 100
        level = "##" if context.command_path.count(" ") < 2 else "###"
        sections.append(
            f"{level} {context.command_path}\n\n```text\n{click.unstyle(command.get_help(context))}\n```\n"
        )
    return "\n".join(sections)


def provider_table() -> str:
    """Return where each provider is looked for, and where its key."""
    rows = []
    for name, provider in PROVIDERS.items():
        keys = [
            f"`{key}`"
            for key in (provider.key_variable, provider.other_key_variable)
            if key
        ]
        address = f"`{provider.address}`" if provider.address else ""
        variable = f"`{provider.address_variable}`" if provider.address_variable else ""
        rows.append(f"| `{name}` | {', '.join(keys)} | {variable} | {address} |")
    return (
        "\n| provider | key | address | default address |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n"
    )


def decisions() -> str:
    """Return the index of the decisions."""
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    rows = []
    for page in pages:
        number, _, title = (
            page.read_text(encoding="utf-8")
            .partition("\n")[0]
            .removeprefix("# ")
            .partition(": ")
        )
        rows.append(f"| {number} | [{title}]({page.name}) |")
    head = "# Decisions\n\nChoices that would be costly to undo, with their reasons.\n\n| | decision |\n|---|---|\n"
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
