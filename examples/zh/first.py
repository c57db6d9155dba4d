"""第一个程序：一个模型、一个工具，以及两者之间的一层。模型是一份脚本，因此不需要密钥。"""

import asyncio

import handrail as hr
from handrail.testing import ScriptedServer, call


@hr.tool(effect="read", timeout_s=5)
async def get_weather(city: str) -> dict[str, object]:
    """查询城市的当前气温（摄氏度）。"""
    return {"city": city, "celsius": 21}


async def main() -> None:
    with ScriptedServer([call("get_weather", town="北京"), call("get_weather", city="北京"), "北京 21 °C。"]) as server:
        async with hr.Runtime([get_weather]) as runtime:
            run = await runtime.run("北京现在多少度？", model=server.model)  # 或 model="openai:NAME"
    print(run.transcript(debug=True))
    print(run)


asyncio.run(main())
