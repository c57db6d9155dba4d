"""`handrail serve`: your tools for programs that speak a protocol, and tokens for those that call them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from handrail import plugins
from handrail.cli import options
from handrail.cli.exits import Exit
from handrail.cli.options import Setup
from handrail.serving import tokens

F = TypeVar("F", bound=Callable[..., Any])

_HTTP = (
    click.option(
        "--http",
        "address",
        metavar="HOST:PORT",
        default="",
        help="Serve streamable HTTP on this address, or on this port of 127.0.0.1, instead of stdin and stdout.",
    ),
    click.option(
        "--tokens",
        "tokens_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Whose calls are served over HTTP: tables [[token]] in TOML, see `handrail serve token`.",
    ),
    click.option(
        "--host-name",
        "hosts",
        metavar="NAME",
        multiple=True,
        help="A name under which clients reach the server, such as mcp.example.com. May be given several times.",
    ),
    click.option(
        "--origin",
        "origins",
        metavar="URL",
        multiple=True,
        help="A site whose pages may send requests. May be given several times.",
    ),
)


def http_options(command: F) -> F:
    """Add the options of a server over HTTP: `address`, `tokens_file`, `hosts` and `origins`."""
    for option in reversed(_HTTP):
        command = option(command)
    return command


_CONSOLE = (
    click.option(
        "--http",
        "address",
        metavar="HOST:PORT",
        default="8321",
        show_default=True,
        help="Where to listen: an address, or a port of 127.0.0.1. 0 is any port that is free.",
    ),
    click.option(
        "--model",
        "models",
        metavar="PROVIDER:NAME",
        multiple=True,
        envvar="HANDRAIL_MODEL",
        show_envvar=True,
        help="A model that may be asked; the first is the default. May be given several times.",
    ),
    click.option(
        "--system",
        default="",
        metavar="TEXT",
        help="Instructions for the model, before the question.",
    ),
    click.option(
        "--token",
        metavar="TOKEN",
        default="",
        envvar="HANDRAIL_SERVE_TOKEN",
        show_envvar=True,
        help="One token, whose owner may do everything.",
    ),
    click.option(
        "--tokens",
        "tokens_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Who may do what: tables [[token]] in TOML, see `handrail serve token`.",
    ),
    *_HTTP[2:],
    click.option(
        "--proxy",
        "proxies",
        metavar="ADDRESS",
        multiple=True,
        help="A reverse proxy whose word counts on who sends a request. May be given several times.",
    ),
    click.option(
        "--identity-header",
        metavar="NAME",
        default="",
        help="The header in which such a proxy names the person, such as X-Forwarded-User.",
    ),
    click.option(
        "--identity-role",
        type=click.Choice(tokens.ROLES),
        default="see",
        show_default=True,
        help="The role of people whom a proxy names and no token does.",
    ),
    click.option(
        "--open", "opens", is_flag=True, help="Open the console in a browser."
    ),
    click.option(
        "--lang",
        type=click.Choice(["en", "zh"]),
        show_default="the browser's",
        help="The language of the console, until a reader chooses another.",
    ),
)


def _console_options(command: F) -> F:
    for option in reversed(_CONSOLE):
        command = option(command)
    return command


@click.group("serve", cls=options.Commands, invoke_without_command=True)
@options.setup
@options.store
@_console_options
@options.as_json
@options.debug
@click.pass_context
def command(context: click.Context, /, setup: Setup, **how: Any) -> int:
    """Serve the console and the HTTP API, or your tools to the clients of a protocol.

    Without a command: the console and the API on one port of this machine, for the runs of the store. With --model
    runs can be started there; with --tools they can go on after an answer. Another address needs tokens.

    \b
    Examples:
      handrail serve --store sqlite:///handrail.db --tools shop.tools --model openai:NAME --open
      handrail serve --tools shop.tools --http 0.0.0.0:8321 --tokens tokens.toml --host-name agents.example.com
      handrail serve mcp --tools examples/weather.py
      handrail serve token anna --role approve >> tokens.toml
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before_commands(context)
        return Exit.OK
    code: int = plugins.load("consoles", "browser").serve(setup, **how)
    return code


def _refuse_options_before_commands(context: click.Context) -> None:
    """Refuse options that would be lost: the options of a command follow its name."""
    given = [
        name
        for name in context.params
        if context.get_parameter_source(name)
        in (click.core.ParameterSource.COMMANDLINE,)
    ]
    if given:
        raise click.UsageError(
            f"write the options behind {context.invoked_subcommand!r}."
        )


@command.command("token")
@click.argument("principal")
@click.option(
    "--tenant", metavar="NAME", default="", help="For which tenant its calls are made."
)
@click.option(
    "--role",
    type=click.Choice(tokens.ROLES),
    default=None,
    help="What it may do in `handrail serve`: `see` without this. Each role includes those before it.",
)
@options.debug
def token(principal: str, tenant: str, role: tokens.Role | None) -> int:
    """Make a bearer token for PRINCIPAL, on whose behalf calls with it are made.

    The entry for the file of --tokens goes to stdout; it has the token's hash only. The token itself goes to stderr,
    and nowhere else: hand it over now.

    \b
    Example:
      handrail serve token anna >> tokens.toml
    """
    entry = tokens.make_entry(principal, tenant, role or "")
    click.echo(entry.text, nl=False)
    click.echo(entry.token, err=True)
    return Exit.OK
