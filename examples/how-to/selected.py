"""Two hundred tools: what a request shows of them, and what happens when the model writes a name that is not there."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedModel, call

AREAS = ["order", "invoice", "shipment", "warranty", "supplier", "meeting", "vacation", "budget", "printer", "contract"]
DEEDS = ["get", "list", "search", "count", "export", "compare", "archive", "label", "assign", "rename"]
DEEDS += ["open", "close", "approve", "reject", "print", "copy", "share", "rate", "watch", "summarize"]


def a_tool(deed: str, area: str) -> hr.FunctionTool:
    """Return one of the two hundred."""

    def run(number: str) -> str:
        return f"{deed} {area} {number}"

    text = f"{deed.capitalize()} a {area} of the company by its number."
    return hr.FunctionTool(run, name=f"{deed}_{area}", description=text, effect="read", blocking=False)


async def main() -> None:
    tools = [a_tool(deed, area) for area in AREAS for deed in DEEDS]
    script = [call("compare_contracts", number="C-7"), call("compare_contract", number="C-7"), "It is the cheaper one."]
    for selector in ("all", "auto"):
        model = ScriptedModel(script)
        async with hr.Runtime(tools, selector=selector) as runtime:
            run = await runtime.run("Compare contract C-7 with the old one.", model=model)
        shown = [tool.name for tool in model.requests[0].tools]
        print(f"{selector}: {len(shown)} of {len(tools)} tools shown:", ", ".join(shown[:9]), "..." * (len(shown) > 9))
    for message in run.messages:
        if isinstance(message, hr.ToolMessage):
            print(message.result.text)


asyncio.run(main())
