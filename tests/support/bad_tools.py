"""Tools with the six troubles of production, as people write them. Nothing here is ever run."""

import time

import handrail as hr


@hr.tool(effect="write", timeout_s=600)
def create_ticket(data: str) -> dict:
    """Create ticket"""
    return {"error": "the ticket system is closed"} if not data else {"id": 1}


@hr.tool(effect="read", limits=hr.Limits(result_bytes=10_000_000))
async def query_orders(sql: str) -> list:
    """Process data"""
    time.sleep(600)
    if not sql:
        raise ValueError("empty")
    return []


@hr.tool(effect="destructive", risk="low")
async def drop_orders(name: str) -> str:
    """Drops various things."""
    try:
        return name
    except Exception:
        return "failed"
