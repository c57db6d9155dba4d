"""Runs over HTTP: the list, one run whole, its messages, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from starlette.responses import Response

from handrail import admin, plugins
from handrail.core.conversation import Status
from handrail.core.history import sanitize
from handrail.dialects import WireDialect, dialect
from handrail.engine.resume import is_under_way
from handrail.errors import JournalMismatch, Json
from handrail.futures import result_now
from handrail.history import exporting
from handrail.history.call_cards import (
    Sources,
    checklist,
    describe_calls,
    describe_question,
    describe_turns,
    label_text,
    without_texts,
)
from handrail.history.run_history import RunHistory, read_history
from handrail.history.run_moments import RunMoment, moments_in
from handrail.history.summaries import RunSummary, summarize
from handrail.history.wire import as_curl
from handrail.invisible import json_text
from handrail.journal.codec import message_as_json
from handrail.ports import (
    ApprovalStore,
    AuditStore,
    BrowsableRunStore,
    LedgerStore,
    RunStore,
    SubmittedRunStore,
)
from handrail.process_identity import owner
from handrail.records import (
    ApprovalRequest,
    RecordStatus,
    RunRecord,
    StoredRun,
    Submission,
    WriteRecord,
)
from handrail_server.answers import ApiError, not_found, page, time_text
from handrail_server.operations import ApiCall, ApiOperation
from handrail_server.run_index import RunFilter

MOST_AUDIT_RECORDS = 20_000
_EVERY = 1_000_000_000
_STATUSES = tuple(dict.fromkeys((*get_args(Status), *get_args(RecordStatus))))


# ---------------------------------------------------------------------- the list


def list_runs(call: ApiCall) -> Json:
    """Return runs, the newest first."""
    runs_of(call)
    most = call.number("limit", 50, least=1, most=500)
    before = call.number("cursor", 0, least=0, most=10**17)
    query = call.query
    wanted = RunFilter(
        words=tuple(query.get("q", "")[:500].casefold().split()),
        status=call.word("status", _STATUSES),
        tool=query.get("tool", ""),
        failure=query.get("failure", ""),
        is_waiting=query.get("waiting") in ("1", "true"),
    )
    found, cursor = call.deployment.search_runs(
        wanted, call.by, before=before or None, most=most
    )
    submissions = _submissions_of(call, found)
    listed = page(
        [row(each, submissions.get(each.id)) for each in found],
        None if cursor is None else str(cursor),
    )
    return {**listed, "complete": call.deployment.index.is_complete}


def _submissions_of(
    call: ApiCall, summaries: Sequence[RunSummary]
) -> Mapping[str, Submission]:
    """Return the submissions of those runs that are queued for workers, by name."""
    store = call.deployment.store
    queued = [each.id for each in summaries if each.status == "queued"]
    if not queued or not isinstance(store, SubmittedRunStore):
        return {}
    return result_now(store.list_submitted(queued))


def row(summary: RunSummary, submission: Submission | None = None) -> dict[str, Json]:
    """Return a run of a list as the API has it.

    Args:
        submission: Of a run that is queued for workers.
    """
    return {
        "id": summary.id,
        "status": summary.status,
        "queue": submission.queue if submission else None,
        "note": (submission.note or None) if submission else None,
        "question": summary.question,
        "started_at": time_text(summary.started),
        "ended_at": time_text(summary.ended),
        "updated_at": time_text(summary.updated),
        "calls": summary.calls,
        "failed": summary.failed,
        "waiting": summary.waiting,
        "in_doubt": summary.in_doubt,
        "tools": list(summary.tools),
        "failures": list(summary.failures),
        "parent": summary.parent or None,
    }


# ---------------------------------------------------------------------- one run


def show_run(call: ApiCall) -> Json:
    """Return a run whole."""
    deployment = call.deployment
    last_event = deployment.hub.last  # before the store is read: nothing is missed
    stored = load(call)
    history = read(stored)
    questions = questions_of(call, stored.record.run_id)
    sources = gather(call, stored, questions)
    _, reason, text = history.ending
    result = stored.record.result
    summary = summarize(stored)
    submission = _submissions_of(call, [summary]).get(summary.id)
    run = {
        **row(summary, submission),
        "final_text": text,
        "error": reason or None,
        "model": history.model or None,
        "labels": [
            {"turn": turn, "call": id, **dict(label_text(label) or {})}
            for turn, id, label in history.labels
        ],
        "cancel_requested": stored.record.cancel_requested,
        "forked_from": stored.record.forked_from or None,
        "forked_at": stored.record.forked_at or None,
        "takeovers": stored.record.takeovers,
        "under_way": sources.is_under_way,
        "seconds": result.get("seconds") if isinstance(result, Mapping) else None,
    }
    calls = describe_calls(history, sources)
    is_brief = call.query.get("brief") == "1"
    if is_brief:
        run["labels"] = None
    return {
        "run": run,
        "turns": describe_turns(history, sources),
        "calls": [without_texts(each) for each in calls] if is_brief else calls,
        "approvals": [describe_question(each, time_text) for each in questions],
        "checklist": checklist(calls, questions),
        "last_event": last_event,
    }


def show_call(call: ApiCall) -> Json:
    """Return one call of a run whole."""
    stored = load(call)
    questions = questions_of(call, stored.record.run_id)
    sources = gather(call, stored, questions)
    step = call.path["step"]
    for each in describe_calls(read(stored), sources):
        if each["step"] == step:
            return each
    raise not_found(f"call {step!r}")


def _is_carried_out(record: RunRecord) -> bool:
    """Return whether any process drives a run now, this one included."""
    if record.status == "running" and record.owner == owner():
        return True
    return is_under_way(record)


def gather(
    call: ApiCall, stored: StoredRun, questions: Sequence[ApprovalRequest]
) -> Sources:
    """Return what the store and this process know of a run beside its journal."""
    run_id = stored.record.run_id
    store = call.deployment.store
    writes: Sequence[WriteRecord] = ()
    if isinstance(store, LedgerStore):
        writes = result_now(store.list_writes(run_id=run_id, most=_EVERY))
    tools = call.deployment.runtime.tools
    step_times: Mapping[str, float] = {}
    if isinstance(store, BrowsableRunStore):
        step_times = result_now(store.step_times(run_id))
    injected = {each.name: list(each.injected_parameters) for each in tools}
    return Sources(
        time_text=time_text,
        moments=moments_of(call, run_id),
        questions=questions,
        writes=writes,
        step_times=step_times,
        injected=injected,
        is_under_way=_is_carried_out(stored.record),
    )


def moments_of(call: ApiCall, run_id: str) -> Sequence[RunMoment]:
    """Return when what happened: as this process saw it, if it saw the run begin, else as the audit log has it."""
    seen = call.deployment.hub.moments.of(run_id)
    if any(each.name == "ModelAsked" and each.body.get("turn") == 1 for each in seen):
        return seen
    store = call.deployment.store
    if not isinstance(store, AuditStore):
        return seen
    records = result_now(store.log(run_id=run_id, most=MOST_AUDIT_RECORDS))
    logged = moments_in(records)
    return logged or seen


def load(call: ApiCall) -> StoredRun:
    """Return the run of the path.

    Raises:
        ApiError: There is none that this caller may see.
    """
    run_id = call.path["id"]
    stored = None
    if call.by.sees(run_id):
        stored = result_now(runs_of(call).load_run(run_id))
    if stored is None:
        raise not_found(f"run {run_id!r}")
    return stored


def read(stored: StoredRun) -> RunHistory:
    """Decode a run.

    Raises:
        ApiError: This version cannot read it.
    """
    try:
        return read_history(stored)
    except JournalMismatch as error:
        raise ApiError(422, "unreadable", str(error)) from error


def runs_of(call: ApiCall) -> RunStore:
    """Return the store as one that keeps runs.

    Raises:
        ApiError: The store has no runs.
    """
    store = call.deployment.store
    if not isinstance(store, RunStore):
        raise ApiError(409, "not_kept", "this store keeps no runs")
    return store


def questions_of(call: ApiCall, run_id: str) -> Sequence[ApprovalRequest]:
    """Return the questions of a run, whatever their state."""
    store = call.deployment.store
    if not isinstance(store, ApprovalStore):
        return ()
    return result_now(store.list_approvals(state="", run_id=run_id))


def show_messages(call: ApiCall) -> Json:
    """Return every message of a run, as the model was sent it."""
    history = read(load(call))
    return page([_message(message_as_json(each)) for each in history.messages])


def _message(body: Mapping[str, Any]) -> dict[str, Json]:
    role, content = next(iter(body.items()))
    return {"role": "tool" if role == "result" else role, "content": content}


def show_wire(call: ApiCall) -> Json:
    """Return the requests to models and their answers, as far as this process has seen them."""
    run_id = load(call).record.run_id
    return page(
        [
            {
                "at": time_text(at),
                "request": {
                    "method": each.method,
                    "url": each.url,
                    "headers": dict(each.headers),
                    "body": each.body,
                },
                "response": {
                    "status": each.status,
                    "headers": None,
                    "body": each.answer,
                },
                "curl": as_curl(each),
            }
            for at, each in call.deployment.hub.moments.exchanges_of(run_id)
        ]
    )


def show_prompt(call: ApiCall) -> Json:
    """Return the conversation as a model of a dialect would get it, with the tools that are served here."""
    name = call.query.get("dialect", "openai-chat")
    names = plugins.list_writers()
    if name not in names:
        raise ApiError(422, "bad_parameter", "`dialect` is one of " + ", ".join(names))
    history = read(load(call))
    tools = call.deployment.runtime.offered()
    messages = sanitize(history.messages).messages
    spoken = dialect(name)
    if not isinstance(spoken, WireDialect):
        text = spoken.encode_request(messages, tools, history.asked.options)
        return {"dialect": name, "text": text, "body": None, "dialects": names}
    body = spoken.encode_request(messages, tools, history.asked.options)
    return {"dialect": name, "text": None, "body": body, "dialects": names}


def show_audit(call: ApiCall) -> Json:
    """Return the records of a run in the audit log."""
    run_id = load(call).record.run_id
    store = call.deployment.store
    if not isinstance(store, AuditStore):
        raise ApiError(409, "not_kept", "this store keeps no audit log")
    records = result_now(store.log(run_id=run_id, most=MOST_AUDIT_RECORDS))
    return page([{**each.as_json(), "at": time_text(each.at)} for each in records])


def export(call: ApiCall) -> Response:
    """Return the journal of a run, whole: secrets in its conversation are in it too."""
    lines = exporting.journal_lines(load(call))
    text = "".join(f"{json_text(line)}\n" for line in lines)
    return Response(
        text,
        media_type="application/jsonl",
        headers={"content-disposition": 'attachment; filename="run.jsonl"'},
    )


# ---------------------------------------------------------------------- what can be done


async def start_run(call: ApiCall) -> Json:
    """Start a run."""
    run_id, is_new = await call.deployment.start(
        call.body["question"],
        call.by,
        model=call.body.get("model", ""),
        key=call.headers.get("idempotency-key", ""),
    )
    return {"id": run_id, "new": is_new}


async def resume_run(call: ApiCall) -> Json:
    """Have a run go on here."""
    run_id = _run_id_of_path(call)
    await call.deployment.resume(run_id, call.by.name)
    return {"id": run_id}


async def fork_run(call: ApiCall) -> Json:
    """Start a run from the first turns of another."""
    run_id = _run_id_of_path(call)
    at = call.body.get("at", 1)
    return {"id": await call.deployment.fork(run_id, at, call.by.name)}


def cancel_run(call: ApiCall) -> Json:
    """Ask for the end of a run."""
    record = load(call).record
    if record.status == "cancelled":  # a second click, or somebody else was quicker
        return {"id": record.run_id, "status": record.status}
    if not call.deployment.cancel_here(record.run_id, call.by.name):
        record = admin.cancel(runs_of(call), record.run_id, by=call.by.name)
        call.deployment.hub.publish("run_changed", record.run_id)
    return {"id": record.run_id, "status": record.status}


def wake_run(call: ApiCall) -> Json:
    """Let a run that waits for its model ask it now."""
    record = load(call).record
    admin.wake(runs_of(call), record.run_id)
    call.deployment.hub.publish("run_changed", record.run_id)
    return {"id": record.run_id, "status": "queued"}


def _run_id_of_path(call: ApiCall) -> str:
    """Return the name of the run in the path; whether the run exists is checked by whoever uses it."""
    run_id = call.path["id"]
    if not call.by.sees(run_id):
        raise not_found(f"run {run_id!r}")
    return run_id


_TEXT: Mapping[str, Json] = {"type": "string"}

OPERATIONS = [
    ApiOperation(
        "GET",
        "/runs",
        list_runs,
        "see",
        "List runs, the newest first.",
        query={
            "q": "Words of the question.",
            "status": "Only runs that stand so.",
            "tool": "Only runs that have called this tool.",
            "failure": "Only runs with a failure of this code.",
            "waiting": "1 for runs that wait for a person.",
            "limit": "How many, from 1 to 500; 50 by default.",
            "cursor": "`next` of the page before.",
        },
    ),
    ApiOperation(
        "POST",
        "/runs",
        start_run,
        "approve",
        "Start a run. With the header `Idempotency-Key` the same request starts no second one.",
        body={
            "question": {"type": "string", "minLength": 1},
            "model": _TEXT,
        },
        required=("question",),
        status=201,
    ),
    ApiOperation(
        "GET",
        "/runs/{id}",
        show_run,
        "see",
        "Show a run whole.",
        query={"brief": "1 for its calls without their arguments and results."},
    ),
    ApiOperation("GET", "/runs/{id}/calls/{step}", show_call, "see", "Show one call."),
    ApiOperation(
        "GET", "/runs/{id}/messages", show_messages, "see", "Show every message."
    ),
    ApiOperation(
        "GET", "/runs/{id}/wire", show_wire, "see", "Show the requests to models."
    ),
    ApiOperation(
        "GET",
        "/runs/{id}/prompt",
        show_prompt,
        "see",
        "Show the conversation as a model of a dialect gets it.",
        query={"dialect": "Its name; `openai-chat` by default."},
    ),
    ApiOperation(
        "GET", "/runs/{id}/audit", show_audit, "see", "Show its audit records."
    ),
    ApiOperation(
        "GET",
        "/runs/{id}/export",
        export,
        "administer",
        "Export the journal, a line of JSON for each step.",
        gives="application/jsonl",
    ),
    ApiOperation("POST", "/runs/{id}/cancel", cancel_run, "approve", "Cancel a run."),
    ApiOperation(
        "POST",
        "/runs/{id}/wake",
        wake_run,
        "approve",
        "Let a run that waits for its model ask it now.",
    ),
    ApiOperation("POST", "/runs/{id}/resume", resume_run, "approve", "Resume a run."),
    ApiOperation(
        "POST",
        "/runs/{id}/fork",
        fork_run,
        "approve",
        "Start a run from the first turns of another.",
        body={"at": {"type": "integer", "minimum": 1}},
        status=201,
    ),
]
