"""您的智能体保留自己的循环；handrail 执行每条消息里的调用，并给出回复。"""

import asyncio

import openai

import handrail as hr
from handrail.testing import ScriptedServer, call


@hr.tool(effect="write", key="ticket:{customer}:{title}", timeout_s=5)
def create_ticket(customer: str, title: str) -> dict[str, object]:
    """为客户创建工单。"""
    return {"ticket": 4711, "customer": customer, "title": title}


async def main() -> None:
    script = [[call("create_ticket", customer="c-1", title="网络抖动")] * 2, "工单 4711 已创建。"]
    with ScriptedServer(script) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="none")
        runtime = hr.Runtime([create_ticket])
        messages: list = [{"role": "user", "content": "网络抖动，请建工单。"}]
        while True:
            answer = (
                client.chat.completions.create(model="scripted", messages=messages, tools=runtime.tools.definitions())
                .choices[0]
                .message
            )
            messages.append(answer)
            if not answer.tool_calls:
                break
            replies = await runtime.handle(answer, run="conversation-1")  # 每个调用一条回复，次序不变
            print(*(reply["content"] for reply in replies), sep="\n")
            messages += replies
    print(answer.content)


asyncio.run(main())
