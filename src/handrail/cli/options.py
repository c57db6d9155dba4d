"""Options that several commands share, each defined once, and the values that they make."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce, wraps
from math import isnan
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click
from msgspec import Struct
from msgspec.structs import replace

from handrail import dialects, plugins
from handrail.approvers.terminal import TerminalApprover
from handrail.audit import log_key
from handrail.cli import completion, is_debugging, settings
from handrail.cli.consent import Consent
from handrail.cli.loading import file_at, tools_from
from handrail.context import Injected
from handrail.core.budgets import Budget
from handrail.core.policy import Policy
from handrail.core.redaction import Redactor
from handrail.dialects import WireDialect
from handrail.effects import Risk
from handrail.errors import ConfigError, Failure, MissingInjection
from handrail.invisible import check_person, printable
from handrail.logs import log
from handrail.messages import ToolMessage
from handrail.ports import Observer, Store
from handrail.runs import Run
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

F = TypeVar("F", bound=Callable[..., Any])


class Commands(click.Group):
    """A group that lists each of its commands with its whole first sentence, on as many lines as that takes.

    Other packages may add commands to it; see `handrail.plugins`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """List the commands, then those that are added."""
        prefix = f"{self.name} "
        added = [
            name.removeprefix(prefix)
            for name in plugins.list_added("commands")
            if name.startswith(prefix)
        ]
        return [*self.commands, *added]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one that is added is imported."""
        full_name = f"{self.name} {cmd_name}"
        if full_name in plugins.list_added("commands"):
            return cast(click.Command, plugins.load("commands", full_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands."""
        rows = [
            (name, each.get_short_help_str(limit=1000))
            for name in self.list_commands(ctx)
            if (each := self.get_command(ctx, name))
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


# ---------------------------------------------------------------------- single options

tools = click.option(
    "--tools",
    "places",
    metavar="PLACE",
    multiple=True,
    shell_complete=completion.files,
    help="Where the tools are: FILE.py, MODULE, MODULE:ATTRIBUTE, openapi:FILE (JSON or YAML), or mcp:SERVER (a "
    "command, an address or a name in handrail.toml). May be repeated.",
)
wire = click.option(
    "--wire",
    is_flag=True,
    help="Show the HTTP requests and answers, keys masked, and as curl.",
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
)
as_jsonl = click.option(
    "--jsonl",
    "as_jsonl",
    is_flag=True,
    help="Take every line as a JSON case of its own; print one for each.",
)
definitions = click.option(
    "--tools",
    "places",
    metavar="PLACE",
    multiple=True,
    shell_complete=completion.files,
    help="Where the tools are: FILE.py, MODULE or MODULE:ATTRIBUTE, or definitions in FILE.json.",
)
dialect = click.option(
    "--dialect",
    "name",
    metavar="NAME",
    required=True,
    shell_complete=completion.dialects,
    help="How it is written: a wire such as openai-chat, or the prompt of a model family.",
)
raw = click.option(
    "--raw",
    is_flag=True,
    help="Show what looks like a secret too: in calls, results and --wire.",
)
quiet = click.option(
    "-q", "--quiet", is_flag=True, help="Show nothing but the result and errors."
)
verbose = click.option(
    "-v", "--verbose", is_flag=True, help="Show arguments and results whole."
)


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta["debug"] = context.meta.get("debug") or value
    if is_debugging(context):
        context.with_resource(_show_log())


class _Printable(logging.Formatter):
    """Formats log records; redacts secrets and escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(Redactor().text(super().format(record)), keep="\n\t")


@contextmanager
def _show_log() -> Iterator[None]:
    """Print the log at level DEBUG: exceptions of tools with their text and traceback."""
    handler = logging.StreamHandler()
    before = log.level
    handler.setFormatter(_Printable())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_note_debug,
    help="Show every message, and tracebacks. Also HANDRAIL_DEBUG=1.",
)


def model(*, required: bool, reads_environment: bool | None = None) -> Callable[[F], F]:
    """`--model PROVIDER:NAME`.

    Args:
        reads_environment: Whether HANDRAIL_MODEL is the default; None if it is only for a required model.
    """
    reads = required if reads_environment is None else reads_environment
    return click.option(
        "--model",
        metavar="PROVIDER:NAME",
        envvar="HANDRAIL_MODEL" if reads else None,
        required=required,
        show_envvar=reads,
        help="Model to ask, such as openai:NAME, or openai:NAME@http://localhost:8000/v1 for a compatible server.",
    )


STORE_HERE = "sqlite:///handrail.db"
"""The store in the current folder: the default of every command if the file exists."""

NO_STORE = "memory:"
"""The default otherwise; it ends with the process."""

_STORE_SETTINGS = ("place", "audit_key_file")


def default_store() -> str:
    """Return the store that every command uses unless `--store` names one.

    HANDRAIL_STORE, else `place` of the table `store` in the settings, else `handrail.db` in the current folder if it
    exists, else memory: nothing is written to a disk unless a place is named.
    """
    if Path(STORE_HERE.removeprefix("sqlite:///")).is_file():
        here = STORE_HERE
    else:
        here = NO_STORE
    return os.environ.get("HANDRAIL_STORE") or store_setting("place") or here


def key_file() -> str:
    """Return HANDRAIL_AUDIT_KEY_FILE, else `audit_key_file` of the table `store` in the settings; empty if not set."""
    return os.environ.get(log_key.VARIABLE) or store_setting("audit_key_file")


def store_setting(name: str) -> str:
    """Return a value of the table `store` in the settings; empty if it is not set.

    Raises:
        ConfigError: The table has another name: a misspelt `audit_key_file` would start a log without a key.
    """
    values = settings.table("store")
    for each, value in values.items():
        if each not in _STORE_SETTINGS:
            raise ConfigError(
                f"{each!r} is not a setting of store; the settings are {', '.join(_STORE_SETTINGS)}"
            )
        if not isinstance(value, str):
            raise ConfigError(f"`{each}` of store is {value!r}; write text in quotes")
    return str(values.get(name, ""))


store = click.option(
    "--store",
    metavar="PLACE",
    default=default_store,
    show_default="HANDRAIL_STORE, the settings, or handrail.db where it is there",
    help="Where runs and writes are stored, such as sqlite:///handrail.db or postgresql://host/database.",
)
tenant = click.option(
    "--scope",
    "tenant",
    metavar="TENANT",
    default=None,
    help="Only what belongs to one tenant; '' for what belongs to none.",
)


def _refuse_store_option(
    context: click.Context, _option: click.Parameter, store: str | None
) -> None:
    """Say where the store stands; click would name the options that are spelled alike."""
    if store is not None:
        raise click.UsageError(
            f"the store stands here without --store: {context.command_path} STORE",
            context,
        )


def store_argument(command: F) -> F:
    """Take the store as an argument, in the commands that are about the store itself."""
    refused = click.option(
        "--store",
        "store_option",
        hidden=True,
        expose_value=False,
        callback=_refuse_store_option,
    )
    argument = click.argument("store", required=False, default=default_store)
    return argument(refused(command))


def conversation(runs: Callable[..., Any]) -> Callable[[F], F]:
    """`--continue` and `--session NAME`: which conversation of the store a question goes on with.

    Args:
        runs: Completes the names of runs.
    """
    latest = click.option(
        "--continue",
        "latest",
        is_flag=True,
        help="Go on with the conversation of the store that was changed last.",
    )
    named = click.option(
        "--session",
        metavar="NAME",
        default="",
        shell_complete=runs,
        help="Go on with the conversation of this name, or begin it; any run can be gone on with.",
    )
    return lambda command: latest(named(command))


def decider(command: F) -> F:
    """`--by NAME`: who decides, for the record."""
    return click.option(
        "--by",
        metavar="NAME",
        default=lambda: TerminalApprover().by,
        show_default="your login name",
        help="Who decides, for the record.",
        callback=_check_decider,
    )(command)


def _check_decider(_: click.Context, __: click.Parameter, by: str) -> str:
    return check_person("--by", by)


# ---------------------------------------------------------------------- what a runtime is made from


class Setup(Struct, frozen=True):
    """The parts of a runtime that the command line gives."""

    tools: Toolset
    policy: Policy
    consent: Consent
    inject: Mapping[str, str]
    places: Sequence[str] = ()
    """Where the tools are, as typed."""

    def check_injected(self, tools: Iterable[BaseTool]) -> None:
        """Check that `--inject` fills every parameter that these tools take from the caller.

        Raises:
            MissingInjection: A tool needs a value that `--inject` does not give; the error names the option.
        """
        for tool in tools:
            for name in list_injected(tool):
                if name not in self.inject:
                    raise MissingInjection(
                        f"{tool.name!r} needs `{name}` from you; add: --inject {name}=..."
                    )

    def runtime(
        self, *observers: Observer, store: str | Store = NO_STORE, scope: str = ""
    ) -> Runtime:
        """Return a runtime; the caller closes it.

        The login name proves nobody, and whoever sits at the terminal is the one to ask: their approval counts.
        """
        settings.apply_otel()
        return Runtime(
            self.tools,
            store=store,
            policy=replace(self.policy, own_approval=True),
            observers=observers,
            approver=self.consent,
            principal=self.consent.terminal.by,
            scope=scope,
        )

    def unattended_runtime(self, store: Store, *, notify: str | None = None) -> Runtime:
        """Return a runtime that asks nobody at this terminal: other calls wait for an answer from elsewhere.

        Args:
            notify: Where people are told that a question waits, as `Runtime` takes it.
        """
        settings.apply_otel()
        consent = self.consent
        approver = None if consent.up_to is None else consent.approve_unasked
        return Runtime(
            self.tools,
            store=store,
            policy=self.policy,
            approver=approver,
            notify=notify,
        )


_SETUP = (
    tools,
    click.option(
        "--yes-to",
        metavar="RISK",
        default="",
        help="Approve calls up to this risk without asking: low, medium or high (every call).",
    ),
    click.option(
        "--policy",
        "rules",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="A policy in TOML.",
    ),
    click.option(
        "--inject",
        "injections",
        metavar="NAME=VALUE",
        multiple=True,
        help="Fill a parameter that the model never sees, as text. May be given several times.",
    ),
)


def setup(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a runtime to a command, which gets them as one `setup`."""

    @wraps(command)
    def with_setup(
        places: tuple[str, ...],
        yes_to: str,
        rules: Path | None,
        injections: tuple[str, ...],
        **others: Any,
    ) -> Any:
        if rules:
            policy = Policy.from_toml(file_at(rules))
        else:
            policy = Policy()
        consent = Consent(TerminalApprover(), _highest_risk(yes_to))
        return command(
            setup=Setup(
                tools_from(places), policy, consent, injections_from(injections), places
            ),
            **others,
        )

    return _with(_SETUP, with_setup)


_LEAST_ONE = click.IntRange(min=1)


class Seconds(click.FloatRange):
    """A time; a NaN is in no range, and click would take it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See `click.ParamType.convert`."""
        seconds: float = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def _budget(usual: Budget) -> Sequence[Callable[[F], F]]:
    return (
        click.option(
            "--max-seconds",
            metavar="S",
            type=Seconds(min=0, min_open=True),
            default=usual.time_s,
            show_default=True,
            help="Time that a run may take, without the time that people take to answer.",
        ),
        click.option(
            "--max-calls",
            metavar="N",
            type=_LEAST_ONE,
            default=usual.calls,
            show_default=True,
            help="Calls that a run may make.",
        ),
        click.option(
            "--max-turns",
            metavar="N",
            type=_LEAST_ONE,
            default=usual.turns,
            show_default=True,
            help="Answers that the model may give.",
        ),
        click.option(
            "--max-tokens",
            metavar="N",
            type=_LEAST_ONE,
            default=usual.tokens,
            help="Tokens that a run may use, in and out.",
        ),
    )


_BUDGET = _budget(Budget())
_NEW_BUDGET = _budget(Budget(None, None, None))


def budget(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the limits of a run to a command, which gets them as one `budget`."""

    @wraps(command)
    def with_budget(
        max_seconds: float,
        max_calls: int,
        max_turns: int,
        max_tokens: int | None,
        **others: Any,
    ) -> Any:
        limits = Budget(
            time_s=max_seconds,
            calls=max_calls,
            turns=max_turns,
            tokens=max_tokens,
        )
        return command(budget=limits, **others)

    return _with(_BUDGET, with_budget)


def new_budget(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that change the budget of a stored run to a command, which gets them as `limits`."""

    @wraps(command)
    def with_limits(
        max_seconds: float | None,
        max_calls: int | None,
        max_turns: int | None,
        max_tokens: int | None,
        **others: Any,
    ) -> Any:
        options_given = {
            "time_s": max_seconds,
            "calls": max_calls,
            "turns": max_turns,
            "tokens": max_tokens,
        }
        limits = {
            name: limit for name, limit in options_given.items() if limit is not None
        }
        return command(limits=limits, **others)

    return _with(_NEW_BUDGET, with_limits)


def _with(options: Sequence[Callable[[F], F]], command: F) -> F:
    """Decorate a command with options; its help lists them in this order."""
    return reduce(
        lambda decorated, option: option(decorated), reversed(options), command
    )


def _highest_risk(text: str) -> Risk | None:
    """Return the highest risk in a text such as `low,medium`; None if it names none."""
    named = {word.strip().lower() for word in text.split(",") if word.strip()}
    if unknown := named - set(get_args(Risk)):
        raise ConfigError(
            f"--yes-to has {', '.join(sorted(unknown))}; risks are {', '.join(get_args(Risk))}"
        )
    return max(
        (risk for risk in get_args(Risk) if risk in named),
        key=get_args(Risk).index,
        default=None,
    )


def injections_from(assignments: Iterable[str]) -> Mapping[str, str]:
    """Split assignments such as `tenant=acme` at the first `=`; the value may be empty."""
    injections = {}
    for each in assignments:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise ConfigError(
                f"--inject has {each!r}; write it as NAME=VALUE, such as tenant=acme"
            )
        injections[name] = value
    return injections


# ---------------------------------------------------------------------- small helpers of commands


def list_injected(tool: BaseTool) -> list[str]:
    """Return the names of the parameters that the caller fills and the model never sees."""
    return [
        name
        for name, kind in tool.injected_parameters.items()
        if issubclass(kind, Injected)
    ]


def text_or_stdin(text: str) -> str:
    """Return the text, or all of stdin for `-`."""
    if text != "-":
        return text
    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError("`-` reads stdin, which is closed")
    try:
        text_read = sys.stdin.read()
        text_read.encode()  # a bare locale lets bytes through that are not text
    except ValueError as error:
        raise ConfigError(f"stdin is not {sys.stdin.encoding} text: {error}") from error
    return text_read


def wires() -> list[str]:
    """Return the names of the wires; prompt dialects have no tool definitions and no request bodies."""
    return [
        name
        for name in plugins.list_names("dialects")
        if isinstance(dialects.dialect(name), WireDialect)
    ]


def one_form(as_json: bool, as_jsonl: bool) -> None:
    """Refuse both `--json` and `--jsonl`."""
    if as_json and as_jsonl:
        raise click.UsageError(
            "--json prints one document and --jsonl one for each line; choose one."
        )


def read_text(file: str) -> str:
    """Return the text in a file, or on stdin for `-`.

    Raises:
        ConfigError: It cannot be read.
    """
    if file == "-":
        # the line end is the shell's, not the model's
        return text_or_stdin("-").removesuffix("\n")
    try:
        return file_at(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def call_failures(run: Run) -> Iterator[Failure | None]:
    """Yield the failure of each call of a run, None for one that succeeded."""
    return (
        message.result.failure
        for message in run.new_messages
        if isinstance(message, ToolMessage)
    )
