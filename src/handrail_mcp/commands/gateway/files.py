"""`handrail gateway import` and `restore`: the servers in the file of a client."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from handrail import _lazy
from handrail.cli import options
from handrail.cli.store_access import print_json, say
from handrail_mcp.gateways import client_configs

if TYPE_CHECKING:
    from handrail_mcp.gateways import settings
else:
    # it takes the extra `mcp`, and `--help` does not
    settings = _lazy.module("handrail_mcp.gateways.settings")

_IS_FILE = click.Path(path_type=Path)


@click.command("import")
@click.argument("client_file", metavar="FILE", type=_IS_FILE)
@options.as_json
@options.debug
@click.pass_context
def import_file(context: click.Context, client_file: Path, as_json: bool) -> None:
    """Move the servers of a client's file behind the gateway; a copy of the file stays beside it.

    Knows the files of Claude Desktop, Claude Code, Cursor, Windsurf and VS Code.

    \b
    Examples:
      handrail gateway import ~/.cursor/mcp.json
      handrail gateway import .vscode/mcp.json
    """
    file: Path = context.obj
    client_file = client_file.expanduser()
    command = [_find_program(), "gateway", "--config", str(file.resolve()), "run"]
    # First what can be refused: the client's file is changed last.
    preview = client_configs.preview_move(client_file, command)
    settings.add_servers(file, preview.servers)
    imported = client_configs.move_servers(client_file, command)
    if as_json:
        document = {"config": str(file), "servers": [*imported.servers]}
        print_json({**document, "left": dict(imported.left)})
        return
    say(f"moved to {file}: {', '.join(imported.servers)}")
    for name, why in imported.left.items():
        say(f"left with the client: {name}, because {why}")
    say(f"to undo it: handrail gateway restore {client_file}")
    say("next: handrail gateway list, then agree to the tools you want")


@click.command("restore")
@click.argument("client_file", metavar="FILE", type=_IS_FILE)
@click.option("--force", is_flag=True, help="Even if it was changed after the import.")
@options.debug
def restore(client_file: Path, force: bool) -> None:
    """Put a client's file back as it was before the import, byte for byte.

    \b
    Example:
      handrail gateway restore ~/.cursor/mcp.json
    """
    client_configs.restore(client_file.expanduser(), force=force)
    say(f"{client_file} is as it was")


def _find_program() -> str:
    """Return how a client starts us: it may have another PATH."""
    beside = Path(sys.argv[0]).resolve()
    if beside.name.startswith("handrail") and beside.is_file():
        return str(beside)
    return shutil.which("handrail") or "handrail"
