"""`handrail approvals`: the calls that wait for a person, and the decisions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import click
from msgspec.structs import asdict

from handrail import admin
from handrail.cli import cases, completion_names, options
from handrail.cli.printer import console, print_columns
from handrail.cli.run_pages import WORKER_RESUMES
from handrail.cli.store_access import (
    QUESTIONS,
    STANDING_APPROVALS,
    brief,
    command_line,
    expand_id,
    indent_json,
    is_of_tenant,
    print_json,
    print_table,
    resolve_run_id,
    say,
    span,
)
from handrail.effects import ApprovalScope
from handrail.engine.approvals import KEY_HOME
from handrail.engine.nested_runs import outer_run
from handrail.engine.resume import is_under_way
from handrail.engine.scoped_store import parse_scope, strip_scope
from handrail.errors import ConfigError, Json
from handrail.futures import result_now
from handrail.ports import ApprovalStore, RunStore, SubmittedRunStore
from handrail.records import ApprovalRequest, ApprovalState, describe_time
from handrail.surroundings.clock import unix_time

_MCP_RUN = "mcp:"
"""How the runs of MCP clients begin: their server names them, which takes the extra `mcp`."""


@click.group("approvals", cls=options.Commands)
def command() -> None:
    """List the calls that wait for a person; approve or deny them.

    A call waits when nobody is at the terminal of its run and the run is stored. A decision is bound to exactly what is
    shown: another tool, description or argument needs another decision. An approval is used once. Where several people
    must agree, each approves under their own name; the person for whom the run acts does not count.

    \b
    Examples:
      handrail approvals list
      handrail approvals show a_5513ba120ecc7f16
      handrail approvals approve a_5513ba120ecc7f16
      handrail approvals deny a_5513ba120ecc7f16 --reason "ask the customer first"
      handrail approvals standing
    """


@command.command("list")
@click.option(
    "--state",
    type=click.Choice([*get_args(ApprovalState), "all"]),
    default="open",
    show_default=True,
    help="Only questions that stand so.",
)
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=completion_names.runs,
    default="",
    help="Only those of one run.",
)
@options.tenant
@options.store
@options.as_json
@options.debug
def list_questions(
    state: str, run_id: str, tenant: str | None, store: str, as_json: bool
) -> None:
    """List questions, the oldest first.

    \b
    Example:
      handrail approvals list --state all --scope acme
    """
    with QUESTIONS.open(store) as approval_store:
        found = result_now(
            approval_store.list_approvals(
                state="" if state == "all" else state,
                run_id=resolve_run_id(approval_store, run_id),
            )
        )
    requests = [each for each in found if is_of_tenant(each.run_id, tenant)]
    if as_json:
        print_json({"questions": [_facts(question) for question in requests]})
        return
    rows = [
        (each.id, _state(each), each.run_id, each.risk, _time(each), _call(each))
        for each in requests
    ]
    heads = ("question", "state", "run", "risk", "time", "call")
    none = "there is no question" if state == "all" else f"no question is {state}"
    print_table(rows, heads, none)


@command.command("show")
@click.argument("id", shell_complete=completion_names.questions)
@options.store
@options.as_json
@options.debug
def show(id: str, store: str, as_json: bool) -> None:
    """Show a question: the exact arguments, the risk, why a person is asked, and until when.

    \b
    Example:
      handrail approvals show a_5513ba120ecc7f16
    """
    with QUESTIONS.open(store) as approval_store:
        id = _find_question(approval_store, id)
        question = admin.question(approval_store, id)
        again = _describe_earlier_approval(approval_store, question)
    if as_json:
        print_json(_facts(question))
        return
    rows = [
        (question.id, f"{question.state}{admin.describe_decision(question)}"),
        ("tool", question.tool),
        ("what it does", question.description),
        ("arguments", indent_json(dict(question.arguments))),
        (
            "edited",
            indent_json(dict(question.edited)) if question.edited is not None else "",
        ),
        ("risk", question.risk),
        ("why asked", question.reason),
        ("asked again", again),
        ("who agrees", _who_agrees(question)),
        ("run", question.run_id),
        ("asked", describe_time(question.asked)),
        ("expires", f"{describe_time(question.expires)}{_time(question, ', ')}"),
    ]
    print_columns(console(), [row for row in rows if row[1]])
    if question.state == "open" and question.awaits_result:
        say(f"answer:  {command_line(f'approvals answer {id} VALUE', store)}")
    elif question.state == "open":
        # the login name may be that of who has agreed
        another = " --by NAME" if question.agreed else ""
        for verb, by in (("approve", another), ("deny", "")):
            say(f"{verb + ':':<9}{command_line(f'approvals {verb} {id}{by}', store)}")


def _describe_earlier_approval(store: ApprovalStore, question: ApprovalRequest) -> str:
    """Return why a person is asked about a call that was approved before and has not run; empty for any other."""
    if question.state != "open" or not question.place:
        return ""
    run_id = question.run_id
    for each in result_now(store.list_approvals(state="approved", run_id=run_id)):
        if each.place == question.place and each.digest != question.digest:
            return (
                f"{each.by} approved this call ({each.id}); "
                "the tool's description, or the arguments, have changed since"
            )
    return ""


@command.command("approve")
@click.argument("id", shell_complete=completion_names.questions)
@click.option(
    "--edit",
    "edited",
    metavar="JSON",
    help="Run it with these arguments instead: all of them, as a JSON object. `-` is stdin. The model reads of it.",
)
@click.option(
    "--for",
    "scope",
    type=click.Choice(get_args(ApprovalScope)),
    default="once",
    show_default=True,
    help="This call only; or every later one of its tool, too, that is asked about for the same reason, in this `run` "
    "or in any: a standing `rule`, which is in force until it is revoked.",
)
@options.decider
@options.store
@options.as_json
@options.debug
def approve(
    id: str,
    edited: str | None,
    scope: ApprovalScope,
    by: str,
    store: str,
    as_json: bool,
) -> None:
    """Approve a call, as it is or with other arguments. It runs when its run goes on.

    Other arguments are held to the tool's schema at once; where they do not fit, the question stays open.

    \b
    Examples:
      handrail approvals approve a_5513ba120ecc7f16
      handrail approvals approve a_5513ba120ecc7f16 --edit '{"order": "7", "amount": 50}'
      handrail approvals approve a_5513ba120ecc7f16 --for run
    """
    if edited is None:
        arguments = None
    else:
        arguments = _arguments(options.text_or_stdin(edited))
    with QUESTIONS.open(store) as approval_store:
        id = _find_question(approval_store, id)
        after = admin.approve(
            approval_store,
            id,
            by=by,
            edited=arguments,
            scope=scope,
        )
        next_step = _next_step(approval_store, after, store)
    _print_outcome(after, store, as_json, next_step)
    if scope != "once" and not as_json:
        say(
            f"from now on: {command_line('approvals standing', store)} shows what this approves, and how it is revoked"
        )


@command.command("deny")
@click.argument("id", shell_complete=completion_names.questions)
@click.option("--reason", metavar="TEXT", default="", help="Why; the model reads it.")
@options.decider
@options.store
@options.as_json
@options.debug
def deny(id: str, reason: str, by: str, store: str, as_json: bool) -> None:
    """Deny a call. The model reads of it when its run goes on.

    \b
    Example:
      handrail approvals deny a_5513ba120ecc7f16 --reason "ask the customer first"
    """
    with QUESTIONS.open(store) as approval_store:
        id = _find_question(approval_store, id)
        after = admin.deny(
            approval_store,
            id,
            by=by,
            reason=reason,
        )
        next_step = _next_step(approval_store, after, store)
    _print_outcome(after, store, as_json, next_step)


@command.command("answer")
@click.argument("id", shell_complete=completion_names.questions)
@click.argument("value")
@click.option("--json", "is_json", is_flag=True, help="VALUE is JSON, not text.")
@options.decider
@options.store
@options.debug
def answer(id: str, value: str, is_json: bool, by: str, store: str) -> None:
    """Deliver the result that a call waits for, such as the answer to a question to the user.

    \b
    Example:
      handrail approvals answer a_5513ba120ecc7f16 "the blue one"
    """
    result: Json = value
    if is_json:
        result = cases.parse_json(value, "VALUE")
    with QUESTIONS.open(store) as approval_store:
        id = _find_question(approval_store, id)
        after = admin.deliver(approval_store, id, result, by=by)
        next_step = _next_step(approval_store, after, store)
    _print_outcome(after, store, False, next_step)


@command.command("withdraw")
@click.argument("id", shell_complete=completion_names.questions)
@click.option("--reason", metavar="TEXT", default="", help="Why, for the audit log.")
@options.decider
@options.store
@options.as_json
@options.debug
def withdraw(id: str, reason: str, by: str, store: str, as_json: bool) -> None:
    """Take back an open question, or an approval that no call has used. The same call is asked about again.

    \b
    Example:
      handrail approvals withdraw a_5513ba120ecc7f16
    """
    with QUESTIONS.open(store) as approval_store:
        id = _find_question(approval_store, id)
        after = admin.withdraw(approval_store, id, by=by, reason=reason)
    _print_outcome(after, store, as_json, "nothing to do: no call is allowed by it")


def _next_step(store: object, question: ApprovalRequest, place: str) -> str:
    """Return the next step after an answer: a command, a call to repeat, or nothing to do."""
    if (
        not isinstance(store, RunStore)
        or (stored := result_now(store.load_run(question.run_id))) is None
    ):
        scope = parse_scope(question.run_id)
        if strip_scope(question.run_id).startswith(_MCP_RUN):
            return "the client makes the same call again, in the same session or with the same key"
        if scope:
            of_scope = f", to a runtime with scope={scope!r}"
        else:
            of_scope = ""
        if strip_scope(question.run_id).startswith(KEY_HOME):
            return f"make the same call again{of_scope}"
        return (
            f"make the same call again with run={strip_scope(question.run_id)!r}{of_scope}; "
            "where a framework keeps the run, let it resume"
        )
    run_id = _outermost_run(store, question.run_id)
    if isinstance(store, SubmittedRunStore) and result_now(
        store.list_submitted([run_id])
    ):
        return f"nothing to do: {WORKER_RESUMES}"
    if is_under_way(stored.record):
        return (
            "nothing to do: the process that asked is alive and waits for this answer"
        )
    if stored.record.status in ("done", "failed", "cancelled"):
        # a worker was quick: the run is no longer known as a submitted one
        return "nothing to do: the run has gone on and ended"
    return command_line(f"runs resume {run_id} --tools ...", place)


def _outermost_run(store: RunStore, run_id: str) -> str:
    """Return the run that takes this one along when it goes on: that of the call that started it, if it is stored."""
    outer = outer_run(run_id)
    if outer and result_now(store.load_run(outer)):
        return _outermost_run(store, outer)
    return run_id


def _print_outcome(
    after: ApprovalRequest, place: str, as_json: bool, next_step: str
) -> None:
    """Print what follows from a decision."""
    if as_json:
        print_json(_facts(after))
        return
    if after.state == "open":
        say(f"agreed, {_who_agrees(after)}: {_call(after)}")
        say(
            f"another: {command_line(f'approvals approve {after.id} --by NAME', place)}"
        )
        return
    if after.awaits_result and after.edited is not None:
        by = f" by {after.by}" if after.by else ""
        say(f"answered{by}: {after.tool}  {brief(after.edited.get('value'))}")
        say(f"go on:   {next_step}")
        return
    say(f"{after.state}{admin.describe_decision(after)}: {_call(after)}")
    if after.edited is not None and (
        left_out := [name for name in after.arguments if name not in after.edited]
    ):
        say(f"left out of the edited arguments: {', '.join(left_out)}")
    say(f"go on:   {next_step}")


# ---------------------------------------------------------------------- standing approvals


@command.command("standing")
@options.store
@options.as_json
@options.debug
def standing(store: str, as_json: bool) -> None:
    """List standing approvals: what runs without a question, because somebody approved it for good.

    \b
    Example:
      handrail approvals standing
    """
    with STANDING_APPROVALS.open(store) as approval_store:
        approvals = admin.standing_approvals(approval_store)
    if as_json:
        print_json({"standing": [asdict(grant) for grant in approvals]})
        return
    rows = [
        (
            each.id,
            each.tool,
            each.run_id or "any",
            each.by,
            describe_time(each.at),
            each.reason,
        )
        for each in approvals
    ]
    print_table(
        rows,
        ("id", "tool", "run", "by", "since", "approves what is asked because"),
        "no standing approval is in force",
    )


@command.command("revoke")
@click.argument("id", shell_complete=completion_names.standing_approvals)
@options.decider
@options.store
@options.as_json
@options.debug
def revoke(id: str, by: str, store: str, as_json: bool) -> None:
    """Take a standing approval back: what it approved is asked about again.

    \b
    Example:
      handrail approvals revoke g_6af1c20e55d8b913
    """
    with STANDING_APPROVALS.open(store) as approval_store:
        id = expand_id(
            id, (grant.id for grant in admin.standing_approvals(approval_store))
        )
        grant = admin.revoke(approval_store, id, by=by)
    if as_json:
        print_json({"revoked": id, "by": by})
        return
    where = grant.run_id or "any run"
    say(f"revoked by {by}: {grant.tool} is asked about again, in {where}")


def _find_question(approval_store: ApprovalStore, given: str) -> str:
    """Return the id of the question with this id, or with an id that begins so."""
    if given and result_now(approval_store.list_approvals(state="", id=given)):
        return given
    return expand_id(
        given,
        (
            question.id
            for question in result_now(approval_store.list_approvals(state=""))
        ),
    )


def _arguments(text: str) -> Mapping[str, Json]:
    value = cases.parse_json(text, "--edit")
    if not isinstance(value, dict):
        raise ConfigError(
            f"--edit holds {type(value).__name__}; arguments are a JSON object"
        )
    return value


def _facts(question: ApprovalRequest) -> dict[str, Json]:
    names: Sequence[str] = (
        "id",
        "state",
        "run_id",
        "call_id",
        "tool",
        "description",
        "risk",
        "reason",
        "by",
        "decision_reason",
        "asked",
        "expires",
        "digest",
        "required_approvals",
        "principal",
    )
    if question.edited is None:
        edited = None
    else:
        edited = dict(question.edited)
    values = {name: getattr(question, name) for name in names}
    return values | {
        "agreed": list(question.agreed),
        "arguments": dict(question.arguments),
        "edited": edited,
    }


def _state(question: ApprovalRequest) -> str:
    several = question.state == "open" and question.required_approvals > 1
    if several:
        return f"open, {len(question.agreed)} of {question.required_approvals}"
    return question.state


def _who_agrees(question: ApprovalRequest) -> str:
    """Say how many people must agree, where that are several, who has, and who may not."""
    if question.required_approvals == 1:
        return ""
    if question.agreed:
        agreed = f"{', '.join(question.agreed)} did"
    else:
        agreed = "nobody has yet"
    if question.principal:
        other = f"; not {question.principal}, whom the run acts for"
    else:
        other = ""
    return f"{len(question.agreed)} of {question.required_approvals} people: {agreed}{other}"


def _call(question: ApprovalRequest) -> str:
    """Return what would run: with the arguments that a person put in the place of the model's, if one did."""
    if question.edited is None:
        arguments = question.arguments
    else:
        arguments = question.edited
    return f"{question.tool}  {brief(dict(arguments))}"


def _time(question: ApprovalRequest, before: str = "") -> str:
    """Say how long there is time for a word, or for its use."""
    if question.state in ("open", "approved"):
        return f"{before}{span(question.expires - unix_time())} left"
    if before:
        return ""
    return f"asked {describe_time(question.asked)}"
