"""A write that happens at most once, although it fails, loses its answer, and is asked for twice."""

import asyncio

import handrail as hr

SENT: dict[str, str] = {}


def was_sent(arguments: dict[str, str], context: hr.Context[None]) -> hr.Found | hr.NotFound:
    """Look in the outbox: asked when nobody knows whether the mail went out."""
    sent = SENT.get(arguments["order_id"])
    return hr.Found(f"sent: {sent}") if sent else hr.NotFound()


@hr.tool(effect="write", key="mail:{order_id}", resource="order:{order_id}", verify=was_sent, timeout_s=5)
async def send_mail(order_id: str, text: str, context: hr.Context[None]) -> str:
    """Send the customer of an order one mail."""
    if context.attempt == 1:  # certainly nothing happened: it is tried again
        raise hr.NoEffect("MAILER_BUSY", "The mailer is busy.", retryable=True)
    SENT[order_id] = text
    raise ConnectionResetError("the answer was lost")  # it may have happened: `verify` is asked


async def main() -> None:
    mail = {"order_id": "A-1", "text": "It is on its way."}
    async with hr.Runtime([send_mail], backoff=hr.Backoff(first_s=0)) as runtime:
        first = await runtime.call("send_mail", mail)
        again = await runtime.call("send_mail", mail)
        other = await runtime.call("send_mail", {**mail, "text": "It is late."})
    print(first.value, "| attempts:", first.attempts)
    print(again.value, "| attempts:", again.attempts, "| replayed:", again.replayed)
    print(other.failure.code)


asyncio.run(main())
