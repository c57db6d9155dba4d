"""Approvals over HTTP: the questions, and people's decisions on them.

Rule 1: a decision names the digest of what was shown. If the question has another digest, nothing is decided.
Rule 2: the first decision counts. A later one is refused with the name of who decided, and how.
"""

from __future__ import annotations

import asyncio
from typing import get_args

from handrail import admin
from handrail.errors import ConfigError, Json
from handrail.futures import result_now
from handrail.history.call_cards import describe_question
from handrail.history.run_moments import RunMoment
from handrail.ports import ApprovalStore
from handrail.records import ApprovalRequest, ApprovalState
from handrail.surroundings.clock import unix_time
from handrail_server.access import is_same
from handrail_server.answers import ApiError, not_found, page, time_text
from handrail_server.operations import ApiCall, ApiOperation


def list_questions(call: ApiCall) -> Json:
    """Return the open questions, the oldest first."""
    store = questions_store(call)
    state = call.word("state", (*get_args(ApprovalState), "all"), "open")
    found = result_now(store.list_approvals(state="" if state == "all" else state))
    return page(
        [
            describe_question(each, time_text)
            for each in found
            if call.by.sees(each.run_id)
        ]
    )


async def decide(call: ApiCall) -> Json:
    """Record a decision on a question, and resume its run if it can be resumed here."""
    decided = await asyncio.to_thread(_decide, call)
    word = {"call": decided.call_id, "by": call.by.name}
    granted = call.body["verdict"] == "approve"
    call.deployment.hub.moments.add_moment(
        decided.run_id,
        RunMoment(unix_time(), "ApprovalDecided", {**word, "granted": granted}),
    )
    call.deployment.hub.publish(
        "approval_decided",
        decided.run_id,
        id=decided.id,
        state=decided.state,
        by=decided.by,
    )
    goes_on = await call.deployment.go_on(decided.run_id, call.by.name)
    return {"approval": describe_question(decided, time_text), "goes_on": goes_on}


def _decide(call: ApiCall) -> ApprovalRequest:
    store = questions_store(call)
    question = _find(call, store)
    body = call.body
    scope = body.get("scope", "once")
    if not is_same(body["digest"], question.digest):
        raise ApiError(
            409,
            "other_digest",
            "this question is about other arguments than those that were shown; look at it again",
            digest=question.digest,
        )
    if question.state != "open":
        raise _already_answered(question)
    if scope == "rule" and not call.by.may("administer"):
        raise ApiError(
            403, "role_too_small", "a standing rule needs the role 'administer'"
        )
    by = call.by.name
    try:
        if body["verdict"] == "deny":
            return admin.deny(store, question.id, by=by, reason=body.get("reason", ""))
        return admin.approve(
            store,
            question.id,
            by=by,
            edited=body.get("arguments"),
            scope=scope,
        )
    except ConfigError as error:
        now = _find(call, store)
        if now.state != "open":
            raise _already_answered(now) from error
        raise ApiError(422, "not_possible", str(error)) from error


def _already_answered(question: ApprovalRequest) -> ApiError:
    decision = admin.describe_decision(question)
    return ApiError(
        409,
        "already_answered",
        f"the question is {question.state} already{decision}",
        state=question.state,
        by=question.by or None,
        reason=question.decision_reason or None,
    )


def _find(call: ApiCall, store: ApprovalStore) -> ApprovalRequest:
    id = call.path["id"]
    try:
        question = admin.question(store, id)
    except ConfigError as error:
        raise not_found(f"question {id!r}") from error
    if not call.by.sees(question.run_id):
        raise not_found(f"question {id!r}")
    return question


def questions_store(call: ApiCall) -> ApprovalStore:
    """Return the store as one that keeps questions.

    Raises:
        ApiError: The store has no approvals.
    """
    store = call.deployment.store
    if not isinstance(store, ApprovalStore):
        raise ApiError(409, "not_kept", "this store keeps no questions")
    return store


OPERATIONS = [
    ApiOperation(
        "GET",
        "/approvals",
        list_questions,
        "see",
        "List the questions to people, the oldest first.",
        query={"state": "`open` by default; another state, or `all`."},
    ),
    ApiOperation(
        "POST",
        "/approvals/{id}",
        decide,
        "approve",
        "Answer a question: approve or deny exactly what its digest binds.",
        body={
            "verdict": {"enum": ["approve", "deny"]},
            "digest": {"type": "string"},
            "scope": {"enum": ["once", "run", "rule"]},
            "reason": {"type": "string", "maxLength": 10_000},
            "arguments": {"type": "object"},
        },
        required=("verdict", "digest"),
    ),
]
