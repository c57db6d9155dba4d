"""A conversation that is stored under a name: asked again tomorrow, in any process."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.testing import ScriptedModel, call

sent: list[str] = []


@hr.tool(effect="write", timeout_s=5)
async def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    sent.append(text)
    return "sent"


MAIL = call("send_mail", to="ann@example.com", text="Your parcel left today.")
MODEL = ScriptedModel([MAIL, "I told Ann.", MAIL, "She has that mail already.", "By DHL.", "At noon."])


async def main(store: str) -> None:
    for question in ("Tell Ann that her parcel left.", "Tell her again.", "How did it leave?"):
        async with hr.Runtime([send_mail], store=store) as runtime:  # on any day
            session = hr.Session(runtime, id="ticket-881", model=MODEL, system="You help a shop.")
            run = await session.run(question)
            print(f"{run.round}: {run.text} ({len(sent)} mail sent, {len(run.messages)} messages)")
            if run.round == 3:
                await runtime.run("And when?", model=MODEL, after=run)
                try:
                    await runtime.run("And when?", model=MODEL, after=run)  # as if two had read the same state
                except hr.errors.RunUnderWay as error:
                    print(error)


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder, 'handrail.db')}"))
