"""A Chinese question that shares no word with its tool: an embedding model of many languages finds it."""

import asyncio
from collections.abc import Sequence

import handrail as hr
from handrail.selectors.strategies import Searching
from handrail.testing import ScriptedModel

# In production: Endpoint("multilingual-e5-small", "http://127.0.0.1:8000/v1") of handrail.selectors.endpoint
MEANINGS = [("rain", "weather", "下雨", "带伞"), ("refund", "money", "退款"), ("train", "ticket", "火车")]


def embed(texts: list[str]) -> Sequence[Sequence[float]]:
    """Stand in for a model: which of three subjects a text is about."""
    return [[float(sum(word in text.lower() for word in words)) for words in MEANINGS] for text in texts]


def forecast(city: str) -> str:
    """Get the weather of tomorrow."""
    return f"{city}: rain"


def refund(order: str) -> str:
    """Pay the money for an order back."""
    return order


def timetable(station: str) -> str:
    """List the trains that leave a station."""
    return station


async def main() -> None:
    def by_words_and_meaning(tools: hr.Toolset) -> hr.ports.Ranking:
        return hr.selectors.hybrid(tools, embed, scripts=["latin", "cjk"])

    for selector in ("bm25", Searching(by_words_and_meaning, most=1, waits=True)):
        model = ScriptedModel(["..."])
        async with hr.Runtime([forecast, refund, timetable], selector=selector) as runtime:
            await runtime.run("出门要带伞吗？", model=model)
        print([tool.name for tool in model.requests[0].tools])


asyncio.run(main())
