"""The tests of a ticket tool: it dies at every boundary, and a run of it is played from a tape. Run it by pytest."""

from pathlib import Path
from typing import Any

import pytest

import handrail as hr
from handrail.testing import ScriptedModel, call


def desk_in(place: Path) -> list[hr.FunctionTool]:
    """Return the tools over a ticket system that is a directory; a ticket is a file."""

    def look(arguments: dict[str, Any], context: hr.Context[None]) -> hr.Found | hr.NotFound:
        """Ask the ticket system whether the ticket is there."""
        there = place.joinpath(f"ticket-{arguments['request_id']}").exists()
        return hr.Found("opened") if there else hr.NotFound()

    @hr.tool(effect="write", key="ticket:{request_id}", verify=look, timeout_s=5)
    def create_ticket(request_id: str, title: str) -> str:
        """Open a ticket for a customer's request."""
        place.joinpath(f"ticket-{request_id}").write_text(title)
        return "opened"

    @hr.tool(effect="read", timeout_s=5)
    def find_tickets() -> list[str]:
        """List the open tickets."""
        return sorted(ticket.name for ticket in place.glob("ticket-*"))

    return [create_ticket, find_tickets]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a new ticket system for each test."""
    return tmp_path


def test_a_ticket_is_opened_once_whatever_dies(crash, place):
    create_ticket, _ = desk_in(place)
    crash(create_ticket, {"request_id": "881", "title": "fire"}, effects=lambda: len(list(place.glob("ticket-*"))))


def test_a_run_that_dies_at_its_second_ticket_opens_two(crash, place):
    says = [call("create_ticket", request_id=number, title="fire") for number in ("881", "882")]
    survived = crash.run(
        desk_in(place), model=ScriptedModel([*says, "Two tickets."]), write=2,
        effects=lambda: len(list(place.glob("ticket-*"))),
    )  # fmt: skip
    assert (survived.effects, survived.text) == (2, "Two tickets.")


def test_the_model_looks_before_it_opens_a_ticket(cassette, place):
    says = [call("find_tickets"), call("create_ticket", request_id="881", title="fire"), "Your ticket is open."]
    with cassette.runtime(desk_in(place)) as runtime:
        run = runtime.run("My printer is on fire.", model=cassette.model(ScriptedModel(says)))  # yours: "openai:NAME"
    assert run.text == "Your ticket is open."
    assert list(place.iterdir()) == [] or cassette.records  # what is played does nothing
