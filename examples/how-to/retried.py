"""A service that makes a ticket and loses the answer; a caller that tries three times; one ticket."""

import asyncio
import logging

import handrail as hr

TICKETS: list[dict[str, str]] = []


def service(request_id: str, title: str) -> dict[str, str]:
    """Stand in for the ticket system: the ticket is made, and the answer does not arrive."""
    TICKETS.append({"request_id": request_id, "title": title})
    raise ConnectionResetError("connection reset by peer")


def find_ticket(arguments: dict[str, str], context: hr.Context[None]) -> hr.Found | hr.NotFound:
    """Ask the ticket system; called when an answer was lost."""
    found = [ticket for ticket in TICKETS if ticket["request_id"] == arguments["request_id"]]
    return hr.Found(found[0]) if found else hr.NotFound()


@hr.tool(effect="write", key="ticket:{request_id}", verify=find_ticket, timeout_s=5)
def create_ticket(request_id: str, title: str) -> dict[str, str]:
    """Open a ticket for a customer's request."""
    return service(request_id, title)


@hr.tool(effect="write", key="note:{request_id}", timeout_s=5)
def add_note(request_id: str, title: str) -> dict[str, str]:
    """Open a ticket in a system that cannot be asked."""
    return service(request_id, title)


async def main() -> None:
    ticket = {"request_id": "881", "title": "printer on fire"}
    for _ in range(3):
        try:
            service(**ticket)
        except ConnectionResetError:
            pass  # a plain retry
    print("by a plain retry:", len(TICKETS), "tickets")

    async with hr.Runtime([create_ticket, add_note]) as runtime:
        for name in ("create_ticket", "add_note"):
            TICKETS.clear()
            for _ in range(3):
                result = await runtime.call(name, ticket)
                print(f"{name}: {result.value if result.ok else result.failure.code}, attempts: {result.attempts}")
            print(f"{name}:", len(TICKETS), "ticket")


logging.disable()  # what the tools raise is logged; this page shows what is returned
asyncio.run(main())
