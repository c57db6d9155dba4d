"""`handrail gateway pins`: what tools say of themselves, and what somebody has agreed to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from handrail.cli import options
from handrail.cli.exits import Exit
from handrail.cli.store_access import print_json, print_table, say
from handrail.errors import ConfigError
from handrail_mcp.commands.gateway.shared import settings_of, shorten

if TYPE_CHECKING:
    from handrail_mcp.pins import Pin, Pins


@click.group("pins", cls=options.Commands)
def pins() -> None:
    """Show what tools have changed since somebody agreed to them, and agree.

    \b
    Examples:
      handrail gateway pins diff
      handrail gateway pins agree files
      handrail gateway pins agree files write_file
    """


@pins.command("list")
@options.as_json
@options.debug
@click.pass_context
def list_pins(context: click.Context, as_json: bool) -> None:
    """List every tool that was seen, and whether somebody has agreed to it.

    \b
    Example:
      handrail gateway pins list
    """
    found = _pins(context).get()
    if as_json:
        states: Any = {name: pin.state for name, pin in found.items()}
        print_json({"tools": states})
        return
    rows = [(pin.server, shorten(pin.tool), pin.state) for pin in found.values()]
    none = "no tool was seen yet; see: handrail gateway list"
    print_table(rows, ("server", "tool", "state"), none)


@pins.command("diff")
@click.argument("server", required=False, default="")
@click.argument("tool", required=False, default="")
@options.debug
@click.pass_context
def diff(context: click.Context, server: str, tool: str) -> int:
    """Show what tools say now that nobody has agreed to. The exit code is 1 where there is any.

    \b
    Example:
      handrail gateway pins diff files
    """
    open_pins = _find_open(_pins(context), server, tool)
    for pin in open_pins:
        click.echo(pin.diff())
    if not open_pins:
        click.echo("nothing has changed", err=True)
    return Exit.ERROR if open_pins else Exit.OK


@pins.command("agree")
@click.argument("server")
@click.argument("tools", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.debug
@click.pass_context
def agree(context: click.Context, server: str, tools: Sequence[str], yes: bool) -> None:
    """Show what the tools of a server say of themselves, and let them be called.

    \b
    Examples:
      handrail gateway pins agree files
      handrail gateway pins agree files write_file --yes
    """
    stored = _pins(context)
    names = tools or [""]
    shown = [pin for name in names for pin in _find_open(stored, server, name)]
    if not shown:
        say(f"every tool of {server} is agreed to")
        return
    for pin in shown:
        click.echo(pin.diff())
    if not yes:
        _confirm()
    digests = {pin.tool: pin.digest for pin in shown}
    stored.agree(server, list(digests), digests=digests)
    say(f"agreed: {', '.join(digests)}")


def _confirm() -> None:
    """Ask the person at the terminal, and end if they do not agree.

    Raises:
        ConfigError: Nobody is there.
    """
    try:
        agreed = click.confirm("Agree to this?", default=False, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise ConfigError(
            "nobody is at the terminal: add --yes, once you have read it"
        ) from None
    if not agreed:
        raise click.Abort


def _pins(context: click.Context) -> Pins:
    from handrail_mcp.pins import Pins

    return Pins(settings_of(context).pins)


def _find_open(stored: Pins, server: str, tool: str) -> list[Pin]:
    """Return the pins of a server, or of one tool, that nobody has agreed to."""
    found = stored.get(server)
    if server and not found:
        raise ConfigError(
            f"no tool of {server!r} was seen yet; look at it with: handrail gateway list"
        )
    if tool and tool not in found:
        raise ConfigError(f"no tool {tool!r} of {server!r} was seen")
    chosen = [found[tool]] if tool else list(found.values())
    return [pin for pin in chosen if pin.state != "agreed"]
