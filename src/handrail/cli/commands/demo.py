"""`handrail demo`: an incident, from the question to the answer, on a stand-in cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any

import click

from handrail import plugins
from handrail.approvers.terminal import TerminalApprover
from handrail.cli import completion, exits, interrupts, options
from handrail.cli.demo.cluster import TOOLS, Cluster
from handrail.cli.demo.story import TEXTS, Language, Texts, script
from handrail.cli.printer import Printer
from handrail.cli.printer import console as open_screen
from handrail.cli.store_access import command_line, open_store
from handrail.cli.timeline import Timeline
from handrail.effects import Approval, AskHuman
from handrail.ports import Approver, Observer, RunStore, Store
from handrail.runs import Run, as_line
from handrail.runtime import Runtime
from handrail.testing import (
    WIRES,
    ScriptedApprover,
    ScriptedServer,
    dialects_of_server,
)

# Between two pieces of the scripted model's answer: slow enough to see that it streams.
PAUSE_S = 0.04


@click.command("demo")
@click.option(
    "--lang",
    type=click.Choice(["zh", "en"]),
    default="en",
    show_default=True,
    help="Language of the story.",
)
@click.option(
    "--no-input",
    is_flag=True,
    help="Do not ask: the demo approves the restart by itself, and says so.",
)
@options.model(required=False)
@click.option(
    "--wire",
    metavar="[NAME]",
    shell_complete=completion.dialects,
    is_flag=False,
    flag_value=WIRES[0],
    help="Show the HTTP requests and answers, and as curl; with a name, speak that wire: anthropic, hermes, ...",
)
@click.option(
    "--mcp",
    "over_mcp",
    is_flag=True,
    help="Another story: an MCP client, the gateway, two servers, one of which changes overnight.",
)
@click.option(
    "--console",
    is_flag=True,
    help="Open the console on the run, live; the answer may be given there. End with Ctrl-C.",
)
@options.store
@options.as_json
@options.debug
def command(
    lang: Language,
    no_input: bool,
    model: str | None,
    wire: str | None,
    over_mcp: bool,
    console: bool,
    store: str,
    as_json: bool,
) -> int:
    """Watch a model and its tools at work; needs no key and no network.

    A scripted model, behind a real HTTP server on this machine, looks into a slow service. It makes the mistakes that
    models make, and you are asked before anything is restarted.

    \b
    Examples:
      handrail demo
      handrail demo --lang zh --wire
      handrail demo --wire anthropic         # the same story in another provider's own language
      handrail demo --model openai:NAME      # a real model, the same tools
      handrail demo --mcp
      handrail demo --console
    """
    if over_mcp:
        return _play_over_mcp(lang, no_input)
    spoken = _wire(wire or WIRES[0])
    if model and spoken != WIRES[0]:
        raise click.UsageError(
            "--model decides the wire; leave out the name after --wire."
        )
    texts = TEXTS[lang]
    cluster = Cluster()
    screen = open_screen(sys.stderr if as_json else sys.stdout)
    printer = Printer(
        Timeline(streams=True, wire=wire is not None),
        screen,
        captions={} if model else texts.captions,
    )
    terminal = TerminalApprover()
    asks = terminal.is_there and not no_input
    in_console = console and not no_input
    _introduce(printer, texts, model, asks=asks, in_console=in_console)
    with (
        _serve_model(model, lang, spoken) as model_name,
        _open_store(store, console=console) as run_store,
    ):

        def conclude(run: Run) -> None:
            printer.close()
            if as_json:
                world = {"restarts": cluster.restarts}
                click.echo(as_line({**run.as_json(), "world": world}))
                return
            _conclude(printer, texts, run, cluster)
            if isinstance(run_store, RunStore) and store != options.NO_STORE:
                shown = command_line(f"runs show {run.id}", store)
                printer.say(f"{texts.saved}{shown}")

        run = asyncio.run(
            _investigate(
                texts,
                model_name,
                cluster,
                approver=_approver(texts, terminal, asks, in_console),
                terminal=terminal if asks else None,
                printer=printer,
                store=run_store,
                place=store if console else "",
                conclude=conclude,
            )
        )
    return exits.of_run(run.status, options.call_failures(run))


def _open_store(place: str, *, console: bool) -> AbstractContextManager[Store]:
    if not console:
        return open_store(place, create=True, writes=True)
    opened: AbstractContextManager[Store] = plugins.load(
        "consoles", "browser"
    ).open_server_store(place)
    return opened


def _approver(
    texts: Texts, terminal: TerminalApprover, asks: bool, console: bool
) -> Approver:
    """Return who is asked: the person at the terminal, else whoever is at the console, else the demo itself."""
    if asks:
        return terminal
    if console:
        return _wait_for_the_console
    return ScriptedApprover([Approval(True, by=texts.approver)])


async def _wait_for_the_console(_: AskHuman) -> None:
    """Wait until the question is taken back: somebody has answered it in the console."""
    await asyncio.Event().wait()


def _play_over_mcp(lang: Language, no_input: bool) -> int:
    """Play the story of the gateway; return the exit code."""
    play = plugins.load("stories", "mcp")
    asks = TerminalApprover().is_there and not no_input
    approved = asyncio.run(play(open_screen(sys.stdout), lang, asks=asks))
    return exits.Exit.OK if approved else exits.Exit.DENIED


def _wire(name: str) -> str:
    """Return the wire of that name, or the first that has it as a word: `responses` is `openai-responses`.

    A prompt's dialect is one too: it goes over a raw completion endpoint.
    """
    wire = next((each for each in WIRES if name in each.split("-")), name)
    dialects_of_server(wire)
    return wire


@contextmanager
def _serve_model(model: str | None, lang: Language, wire: str) -> Iterator[str]:
    """Give the name of the model to ask; without one, serve the story meanwhile."""
    if model:
        yield model
        return
    with ScriptedServer(script(lang), wire=wire, pause_s=PAUSE_S) as server:
        yield server.model


async def _investigate(
    texts: Texts,
    model: str,
    cluster: Cluster,
    *,
    approver: Approver,
    terminal: TerminalApprover | None,
    printer: Printer,
    store: Store,
    place: str,
    conclude: Callable[[Run], None],
) -> Run:
    """Play the story, with the console beside it if it has a `place`."""
    here: dict[str, Any] = {"printer": printer, "terminal": terminal}
    observers, beside = _console_beside(place, printer)
    async with (
        Runtime(
            TOOLS, store=store, approver=approver, observers=[printer, *observers]
        ) as runtime,
        beside(runtime),
    ):
        run = await interrupts.drive(
            runtime,
            runtime.run,
            texts.question,
            **here,
            system=texts.system,
            model=model,
            deps=cluster,
        )
        conclude(run)
    return run


def _console_beside(
    place: str, printer: Printer
) -> tuple[Sequence[Observer], Callable[[Runtime], AbstractAsyncContextManager[None]]]:
    """Return what observes the run for the console, and what serves it until Ctrl-C; nothing without a place."""
    if not place:
        return (), lambda _: nullcontext()
    consoles = plugins.load("consoles", "browser")
    hub = consoles.EventHub()

    @asynccontextmanager
    async def serve(runtime: Runtime) -> AsyncIterator[None]:
        async with consoles.serve_run_beside(runtime, hub, place) as url:
            printer.say(f"console: {url}")
            yield
            printer.say(f"console: {url}   (Ctrl-C)")
            await interrupts.wait_for_interrupt()

    return [hub.observer()], serve


def _introduce(
    printer: Printer, texts: Texts, model: str | None, *, asks: bool, in_console: bool
) -> None:
    printer.say(texts.real.format(model=model) if model else texts.scripted)
    if not asks:
        printer.say(texts.at_console if in_console else texts.unattended)
    printer.question(texts.question)


def _conclude(printer: Printer, texts: Texts, run: Run, cluster: Cluster) -> None:
    times = cluster.restarts.get("api-gateway", 0)
    plural_s = "" if times == 1 else "s"
    world = texts.restarted.format(times=times, s=plural_s)
    printer.say(f"{run!r}\n{world}")
    printer.rows(texts.to_read, texts.files.items())
