"""The tools behind the console's tests: a slow service, tickets, and a page of somebody who means harm."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import Field

import handrail as hr

HOSTILE = (
    '<img src=x onerror="window.hurt = 1"><script>window.hurt = 1</script>'
    " {{7*7}} javascript:window.hurt=1 \u202egnp.exe"
)
"""Text that must stay text, wherever it is shown."""

_hanging = {"count": 1}


@hr.tool(effect="read", timeout_s=10)
async def get_logs(
    service: str, tail_lines: Annotated[int, Field(ge=1, le=1000)] = 20
) -> str:
    """Read the last lines of a service's log. Use when a service misbehaves.

    Args:
        service: Name of the service, such as "api-gateway".
        tail_lines: How many lines, counted from the end.
    """
    await asyncio.sleep(0.12)
    return "\n".join(
        f"14:{n // 60:02d}:{n % 60:02d} WARN upstream pool {312 + n}/512 in use"
        for n in range(tail_lines)
    )


@hr.tool(effect="read", timeout_s=10, limits=hr.Limits(attempt_timeout_s=0.3))
async def get_metrics(
    service: str, metric: Literal["all", "cpu", "memory", "latency_p99"] = "all"
) -> dict[str, float]:
    """Read the current metrics of a service.

    Args:
        service: Name of the service, such as "api-gateway".
        metric: One metric, or all of them.
    """
    if _hanging["count"]:
        _hanging["count"] -= 1
        await asyncio.sleep(3600)
    await asyncio.sleep(0.08)
    return {"cpu": 0.31, "memory": 0.92, "latency_p99": 2.81}


@hr.tool(effect="destructive", resource="service:{service}", timeout_s=30)
async def restart_service(service: str, reason: str, graceful: bool = True) -> str:
    """Restart a service. Requests in flight are lost.

    Args:
        service: Name of the service, such as "api-gateway".
        reason: Why, for the people who are on call.
        graceful: Whether requests in flight are waited for.
    """
    await asyncio.sleep(0.1)
    return f"{service} restarted ({reason}, graceful={graceful})"


@hr.tool(effect="write", key="ticket:{title}", timeout_s=5)
async def create_ticket(title: str, body: str) -> str:
    """Create a ticket for the people on call.

    Args:
        title: What it is about, in a few words.
        body: What is known.
    """
    if title == "lost":
        raise RuntimeError("the connection broke after the request was sent")
    return f"created: {title}"


@hr.tool(effect="read", timeout_s=5)
async def read_page(address: str) -> str:
    """Read a page of the web as text.

    Args:
        address: Address of the page.
    """
    return HOSTILE


@hr.tool(effect="destructive", timeout_s=5)
async def set_quota(account: str, max_bytes: int) -> str:
    """Set how much an account may store. What is above is deleted.

    Args:
        account: Name of the account.
        max_bytes: The limit in bytes.
    """
    return f"{account}: {max_bytes}"


TOOLS = hr.Toolset(
    [get_logs, get_metrics, restart_service, create_ticket, read_page, set_quota]
)
