"""Calls that another framework keeps are known by their ids: a turn that is handed over again is not done again."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr

sent: list[str] = []


@hr.tool(effect="write", write=hr.Write(repeatable=True), timeout_s=10)
async def send(text: str) -> str:
    """Send a message."""
    sent.append(text)
    return "sent"


CALLS = [hr.ToolCall("call_1", "send", '{"text": "Hello."}'), hr.ToolCall("call_2", "send", '{"text": "Hello."}')]


async def main(folder: str) -> None:
    for attempt in ("first", "again, after a crash"):
        async with hr.Runtime([send], store=f"sqlite:///{Path(folder, 'handrail.db')}") as runtime:
            results = await runtime.calls(CALLS, run="thread-881", turn="invocation-1")
            print(f"{attempt}: {[(result.call_id, result.replayed) for result in results]}, {len(sent)} sent")


with TemporaryDirectory() as folder:
    asyncio.run(main(folder))
