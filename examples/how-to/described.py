"""Two tools that a model confuses, and the same two so that it need not guess; what lint says of both."""

from typing import Literal

import handrail as hr


@hr.tool(effect="read", timeout_s=5)
def search(q: str) -> list[str]:
    """Search."""
    return []


@hr.tool(effect="read", timeout_s=5)
def find(data: str, type: str = "open") -> list[str]:
    """Find data."""
    return []


@hr.tool(effect="read", timeout_s=5)
def search_handbook(question: str) -> list[str]:
    """Search the staff handbook by meaning, and return the paragraphs that answer a question.

    Use it for rules, procedures and opening hours. Do not use it for one customer's case: use `find_tickets`.

    Args:
        question: What the user wants to know, such as "How long is the warranty?".

    Returns:
        Up to five paragraphs, the best first.
    """
    return []


@hr.tool(effect="read", timeout_s=5)
def find_tickets(customer_email: str, status: Literal["open", "closed"] = "open") -> list[str]:
    """List the support tickets of one customer.

    Use it when the user speaks of a ticket or a complaint. Do not use it for general questions: use `search_handbook`.

    Args:
        customer_email: Where the customer writes from, such as "ann@example.com".
        status: Which tickets.

    Returns:
        One line for each ticket: its number and its title.
    """
    return []


for tools in ([search, find], [search_handbook, find_tickets]):
    report = hr.lint(tools)
    print(report)
    for finding in report.findings:
        print(f"  {finding.severity:7} {finding.tool:15} {finding.rule}: {finding.message}")
