"""An agent of your own keeps its loop; handrail carries out the calls of each message and gives the replies."""

import asyncio

import openai

import handrail as hr
from handrail.testing import ScriptedServer, call


@hr.tool(effect="write", key="ticket:{customer}:{title}", timeout_s=5)
def create_ticket(customer: str, title: str) -> dict[str, object]:
    """Open a support ticket for a customer."""
    return {"ticket": 4711, "customer": customer, "title": title}


async def main() -> None:
    script = [[call("create_ticket", customer="c-1", title="Unstable network")] * 2, "Ticket 4711 is open."]
    with ScriptedServer(script) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="none")
        runtime = hr.Runtime([create_ticket])
        messages: list = [{"role": "user", "content": "The network is unstable. Open a ticket, please."}]
        while True:
            answer = (
                client.chat.completions.create(model="scripted", messages=messages, tools=runtime.tools.definitions())
                .choices[0]
                .message
            )
            messages.append(answer)
            if not answer.tool_calls:
                break
            replies = await runtime.handle(answer, run="conversation-1")  # one reply for each call, in order
            print(*(reply["content"] for reply in replies), sep="\n")
            messages += replies
    print(answer.content)


asyncio.run(main())
