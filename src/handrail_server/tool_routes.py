"""Tools over HTTP: what each declares, what lint says of it, how it fares; a call by hand; and what is live now."""

from __future__ import annotations

from collections import deque

from handrail.errors import Json
from handrail.futures import result_now
from handrail.history.run_moments import moments_in
from handrail.linting import lint
from handrail.ports import AuditStore
from handrail.tools.tool import BaseTool
from handrail_server.answers import ApiError, not_found, page
from handrail_server.audit_routes import newest_number
from handrail_server.operations import ApiCall, ApiOperation
from handrail_server.tool_stats import ToolStats, count_calls

_NEWEST_RECORDS = 5_000


def list_tools(call: ApiCall) -> Json:
    """Return the tools that are served."""
    tools = call.deployment.runtime.tools
    report = lint(tools)
    findings: dict[str, list[Json]] = {}
    for finding in report.findings:
        findings.setdefault(finding.tool, []).append(
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "message": finding.message,
                "rewrite": finding.rewrite or None,
            }
        )
    costs = {each.tool: each.most for each in report.costs}
    stats = _stats(call)
    items = [
        {
            **_facts(tool),
            "findings": findings.get(tool.name, []),
            "tokens": costs.get(tool.name),
            **stats.get(tool.name, ToolStats(deque())).as_json(),
        }
        for tool in tools
    ]
    return {**page(items), "findings": findings.get("", [])}


def _facts(tool: BaseTool) -> dict[str, Json]:
    return {
        "name": tool.name,
        "description": tool.description,
        "schema": dict(tool.parameters),
        "effect": tool.effect or None,
        "risk": tool.effective_risk,
        "injected": list(tool.injected_parameters),
        "timeout_s": tool.timeout_s,
    }


def _stats(call: ApiCall) -> dict[str, ToolStats]:
    """Count the newest calls in the audit log; without a log, those that this process has seen."""
    store = call.deployment.store
    if not isinstance(store, AuditStore):
        seen = call.deployment.hub.moments.all()
        mine = ((run, each) for run, each in seen if call.by.sees(run))
        return dict(count_calls(mine))
    after = max(0, newest_number(store) - _NEWEST_RECORDS)
    records = [
        each
        for each in result_now(store.log(after=after, most=_NEWEST_RECORDS))
        if call.by.sees(each.run_id)
    ]
    runs = [each.run_id for each in records]
    return dict(count_calls(zip(runs, moments_in(records), strict=True)))


async def call_tool(call: ApiCall) -> Json:
    """Carry out one call, with every check that a model's call gets."""
    deployment = call.deployment
    name = call.path["name"]
    if name not in deployment.runtime.tools:
        raise not_found(f"tool {name!r}")
    scope = call.by.scope or ""
    result = await deployment.runtime.call(
        name,
        call.body.get("arguments", {}),
        run=f"console:{_without_slashes(call.by.name)}",
        principal=call.by.name,
        scope=scope,
        inject=deployment.defaults.inject,
        deps=deployment.defaults.deps,
        policy=deployment.policy,
        observers=deployment.observers(scope),
    )
    question = result.question
    return {
        "ok": result.ok,
        "text": result.text,
        "failure": None if result.failure is None else result.failure.as_json(),
        "attempts": result.attempts,
        "repairs": list(result.repairs),
        "question": None if question is None else question.id,
    }


def _without_slashes(name: str) -> str:
    """Escape slashes, which would begin another part of a run's name; different names stay different."""
    return name.replace("%", "%25").replace("/", "%2F")


def show_live(call: ApiCall) -> Json:
    """Return rates, breakers and locks as they are in this process now."""
    if call.by.scope is not None:
        raise ApiError(403, "of_all_tenants", "this is about all tenants together")
    deployment = call.deployment
    tools = deployment.runtime.tools
    rates = [
        {"tool": each.name, "rate": each.limits.rate}
        for each in tools
        if each.limits.rate
    ]
    live = deployment.describe_live()
    return {
        "rates": rates,
        **live,
        "runs": deployment.runs_here(),
        "listeners": deployment.hub.listeners,
    }


OPERATIONS = [
    ApiOperation(
        "GET", "/tools", list_tools, "see", "List tools, with findings and figures."
    ),
    ApiOperation(
        "POST",
        "/tools/{name}/call",
        call_tool,
        "approve",
        "Carry out one call, with every check that a model's call gets.",
        body={"arguments": {"type": "object"}},
    ),
    ApiOperation(
        "GET",
        "/live",
        show_live,
        "see",
        "Show rates, breakers and locks of this process.",
    ),
]
