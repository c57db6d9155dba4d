"""An answer that a program can use: a type goes in, a value of that type comes out, or the model reads why not."""

import asyncio
from typing import Annotated, Literal

from pydantic import BaseModel, Field

import handrail as hr
from handrail.events import AnswerRefused, Event
from handrail.testing import ScriptedModel


class Report(BaseModel):
    """What the night shift wants to know."""

    service: str
    severity: Literal["low", "high"]
    affected: Annotated[int, Field(ge=0)]


def print_event(event: Event) -> None:
    """Print why an answer was not taken."""
    if isinstance(event, AnswerRefused):
        print("refused:", event.failure.message)


async def main() -> None:
    model = ScriptedModel(
        [
            '{"service": "billing", "severity": "terrible", "affected": -1}',
            '{"service": "billing", "severity": "high", "affected": 12}',
        ]
    )
    async with hr.Runtime([], observers=[print_event]) as runtime:
        run = await runtime.run("What is wrong with billing?", model=model, output=Report)
    print(repr(run.output), "|", run.status, "after", run.spent.turns, "answers")


asyncio.run(main())
