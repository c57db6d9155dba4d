"""`handrail approvals`: questions to people that calls wait with, and the words that people give on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import get_args

import click

from handrail.cli import cases, options
from handrail.cli.keeping import QUESTIONS, brief, command_line, laid_out, moment, print_json, print_table, say, span
from handrail.cli.printer import console, print_columns
from handrail.errors import ConfigError, Json
from handrail.host import now_of
from handrail.ports import ApprovalStore, RunStore
from handrail.records import ApprovalState, Question


@click.group("approvals")
def command() -> None:
    """List the calls that wait for a person; approve or deny them.

    A call waits when nobody is at the terminal of its run and the run is kept in a store. A word is bound to exactly
    what is shown: another tool, description or argument needs another one. An approval is used once.

    \b
    Examples:
      handrail approvals list
      handrail approvals show a_5513ba120ecc7f16
      handrail approvals approve a_5513ba120ecc7f16
      handrail approvals deny a_5513ba120ecc7f16 --reason "ask the customer first"
    """


@command.command("list")
@click.option(
    "--state", type=click.Choice([*get_args(ApprovalState), "all"]), default="open", show_default=True,
    help="Only questions that stand so.",
)  # fmt: skip
@click.option("--run", "run_id", metavar="RUN", default="", help="Only those of one run.")
@options.kept
@options.as_json
@options.debug
def list_questions(state: str, run_id: str, store: str, as_json: bool) -> None:
    """List questions, the oldest first.

    \b
    Example:
      handrail approvals list --state all
    """
    with QUESTIONS.opened(store) as kept:
        found = now_of(kept.questions(state="" if state == "all" else state, run_id=run_id))
    if as_json:
        print_json({"questions": [_facts(question) for question in found]})
        return
    rows = [(each.id, each.state, each.run_id, each.risk, _time(each), _call(each)) for each in found]
    heads = ("question", "state", "run", "risk", "time", "call")
    print_table(rows, heads, f"no question is {'there' if state == 'all' else state}")


@command.command("show")
@click.argument("id")
@options.kept
@options.as_json
@options.debug
def show(id: str, store: str, as_json: bool) -> None:
    """Show a question: the exact arguments, the risk, why a person is asked, and until when.

    \b
    Example:
      handrail approvals show a_5513ba120ecc7f16
    """
    with QUESTIONS.opened(store) as kept:
        question = _found(kept, id)
    if as_json:
        print_json(_facts(question))
        return
    rows = [
        (question.id, f"{question.state}{_word(question)}"),
        ("tool", question.tool),
        ("what it does", question.description),
        ("arguments", laid_out(dict(question.arguments))),
        ("edited", laid_out(dict(question.edited)) if question.edited is not None else ""),
        ("risk", question.risk),
        ("why asked", question.reason),
        ("run", question.run_id),
        ("asked", moment(question.asked)),
        ("expires", f"{moment(question.expires)}{_time(question, ', ')}"),
    ]
    print_columns(console(), [row for row in rows if row[1]])
    if question.state == "open":
        for verb in ("approve", "deny"):
            say(f"{verb + ':':<9}{command_line(f'approvals {verb} {id}', store)}")


@command.command("approve")
@click.argument("id")
@click.option(
    "--edit", "edited", metavar="JSON",
    help="Run it with these arguments instead: all of them, as a JSON object. `-` is stdin. The model is told.",
)  # fmt: skip
@options.decided_by
@options.kept
@options.as_json
@options.debug
def approve(id: str, edited: str | None, by: str, store: str, as_json: bool) -> None:
    """Approve a call, as it is or with other arguments. It runs when its run goes on.

    \b
    Examples:
      handrail approvals approve a_5513ba120ecc7f16
      handrail approvals approve a_5513ba120ecc7f16 --edit '{"order": "7", "amount": 50}'
    """
    arguments = None if edited is None else _arguments(options.text_or_stdin(edited))
    _decide(id, store, as_json, granted=True, by=by, because="", edited=arguments)


@command.command("deny")
@click.argument("id")
@click.option("--reason", metavar="TEXT", default="", help="Why; the model is told.")
@options.decided_by
@options.kept
@options.as_json
@options.debug
def deny(id: str, reason: str, by: str, store: str, as_json: bool) -> None:
    """Deny a call. The model is told when its run goes on.

    \b
    Example:
      handrail approvals deny a_5513ba120ecc7f16 --reason "ask the customer first"
    """
    _decide(id, store, as_json, granted=False, by=by, because=reason, edited=None)


def _decide(
    id: str, place: str, as_json: bool, *, granted: bool, by: str, because: str, edited: Mapping[str, Json] | None
) -> None:
    """Record a word and say what follows.

    Raises:
        ConfigError: There is no such question, or it is open no longer: the first word counts.
    """
    wanted = "approved" if granted else "denied"
    with QUESTIONS.opened(place) as kept:
        before = _found(kept, id)
        is_kept = isinstance(kept, RunStore) and now_of(kept.recorded(before.run_id)) is not None
        if before.state != "open":
            raise ConfigError(f"the question {id!r} is {before.state}{_word(before)} and takes no further word")
        after = now_of(kept.decide(id, granted=granted, by=by, because=because, edited=edited)) or before
    if (after.state, after.by, after.because, after.edited) != (wanted, by, because, edited):
        raise ConfigError(f"somebody was quicker: the question {id!r} is {after.state}{_word(after)}")
    if as_json:
        print_json(_facts(after))
        return
    say(f"{wanted}{_word(after)}: {_call(after)}")
    if edited is not None and (left_out := [name for name in after.arguments if name not in edited]):
        say(f"left out of the edited arguments: {', '.join(left_out)}")
    resume = command_line(f"runs resume {after.run_id} --tools ...", place)
    say(f"go on:   {resume}" if is_kept else f"go on:   hand the same call over again with run={after.run_id!r}")


def _found(kept: ApprovalStore, id: str) -> Question:
    found = next((each for each in now_of(kept.questions(state="")) if each.id == id), None)
    if found is None:
        raise ConfigError(f"there is no question {id!r} in this store; `handrail approvals list` shows the open ones")
    return found


def _arguments(text: str) -> Mapping[str, Json]:
    value = cases.json_of(text, "--edit")
    if not isinstance(value, dict):
        raise ConfigError(f"--edit holds {type(value).__name__}; arguments are a JSON object")
    return value


def _facts(question: Question) -> dict[str, Json]:
    told: Sequence[str] = (
        "id", "state", "run_id", "call_id", "tool", "description", "risk", "reason", "by", "because", "asked",
        "expires", "digest",
    )  # fmt: skip
    edited = None if question.edited is None else dict(question.edited)
    return {name: getattr(question, name) for name in told} | {"arguments": dict(question.arguments), "edited": edited}


def _call(question: Question) -> str:
    """Return what would run: with the arguments that a person put in the place of the model's, if one did."""
    return f"{question.tool}  {brief(dict(question.arguments if question.edited is None else question.edited))}"


def _word(question: Question) -> str:
    by = f" by {question.by}" if question.by else ""
    edited = ", with edited arguments" if question.edited is not None else ""
    return f"{by}{edited}{f' ({question.because})' if question.because else ''}"


def _time(question: Question, before: str = "") -> str:
    """Say how long there is time for a word, or for its use."""
    if question.state in ("open", "approved"):
        return f"{before}{span(question.expires - time.time())} left"
    return "" if before else f"asked {moment(question.asked)}"
