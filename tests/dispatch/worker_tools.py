"""Tools of workers in tests: what happens is a line in a file of the folder that `WORLD` names."""

import os
import time
from pathlib import Path

import handrail as hr


def world() -> Path:
    return Path(os.environ["WORLD"])


def note(line: str) -> None:
    with (world() / "effects").open("a") as file:
        file.write(f"{line}\n")


@hr.tool(effect="read")
def look() -> str:
    """Look at the order."""
    return "fine"


@hr.tool(effect="write", replay="key")
def refund(order: str, context: hr.Context[None]) -> str:
    """Refund an order; the far side knows its keys."""
    known = world() / "keys" / context.idempotency_key.replace("/", "_")
    known.parent.mkdir(exist_ok=True)
    if not known.exists():
        note(f"refund {order}")
        known.touch()
    return "refunded"


@hr.tool(effect="destructive")
def delete(order: str) -> str:
    """Delete an order, after a person has agreed."""
    note(f"delete {order}")
    return "deleted"


@hr.tool(effect="read", timeout_s=120)
def hold(order: str) -> str:
    """Wait until somebody opens the gate."""
    note(f"hold {order}")
    while not (world() / "gate").exists():
        time.sleep(0.02)
    return "held"
