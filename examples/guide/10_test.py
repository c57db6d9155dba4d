"""A test without sleeping: a model from a script, a server that fails first, a clock moved by hand."""

import asyncio

import handrail as hr
from handrail.testing import Fault, ManualClock, Overlap, ScriptedModel, ScriptedServer, call

clock, inside = ManualClock(), Overlap()


@hr.tool(effect="write", key="step:{number}", resource="counter", timeout_s=5)
async def step(number: int) -> int:
    """Go one step; it takes a minute."""
    async with inside:
        await asyncio.sleep(0)  # where another call could come in
        clock.advance(60)
        return number


async def main() -> None:
    two_steps = [[call("step", number=1), call("step", number=2)], "Done."]
    async with hr.Runtime([step], now=clock) as runtime:
        model = ScriptedModel(two_steps)
        run = await runtime.run("Go.", model=model, budget=hr.Budget(time_s=100))
        assert inside.most_inside == 1  # one resource: never both at once
        assert len(model.requests) == 1
        print(run.status, "|", run.reason)

    with ScriptedServer(two_steps, faults=[Fault(status=503), None]) as server:  # real HTTP on 127.0.0.1
        async with hr.Runtime([step]) as runtime:
            run = await runtime.run("Go.", model=server.model)
        print(run.text, "| requests:", len(server.requests))


asyncio.run(main())
