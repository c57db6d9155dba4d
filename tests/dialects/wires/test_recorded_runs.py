"""A run over each provider of which only recorded answers are here: a call, a failed call, and the last words."""

from __future__ import annotations

import json

import pytest

import handrail as hr
from handrail.testing import ScriptedServer
from tests.support import recorded

PATHS = {
    "gemini": "/v1/models/m:generateContent",
    "gemini-interactions": "/v1/interactions",
    "cohere": "/v1/chat",
}


@pytest.mark.anyio
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", recorded.PROVIDERS)
async def test_calls_go_through_the_runtime_and_their_results_go_back(wire, streamed):
    seen: list[str] = []
    heard: list[object] = []

    @hr.tool(effect="read")
    def get_weather(city: str) -> str:
        """Get the temperature of a city."""
        seen.append(city)
        if len(seen) > 1:
            raise hr.ToolError("NO_STATION", "There is no station.")
        return "21 °C"

    answers = [
        recorded.answer(wire, said, streamed=streamed)
        for said in ("weather", "weather", "text")
    ]
    with ScriptedServer([], faults=answers) as server:
        async with hr.Runtime(
            [get_weather], observers=[heard.append] if streamed else ()
        ) as runtime:
            run = await runtime.run("?", model=f"{wire}:m@{server.base_url}")
    assert (run.status, run.text) == ("done", "It is warm.")
    assert seen == ["Paris", "Paris"]
    path = PATHS[wire]
    if streamed and wire == "gemini":
        path = path.replace(":generate", ":streamGenerate") + "?alt=sse"
    assert {*server.paths} == {path}
    last = json.dumps(server.requests[-1], ensure_ascii=False)
    assert last.index("21 °C") < last.index("NO_STATION")
