"""Whole runs: handrail's loop against the denominators."""

from __future__ import annotations

import asyncio
import http.client
import json
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anthropic
import openai
from msgspec.structs import replace

import handrail as hr
from benchmarks import denominators
from benchmarks.denominators import Provider, Write, arguments_of, write_weather
from benchmarks.measuring import Figure, interleaved
from benchmarks.one_call import (
    HANDLE_USUALLY,
    READ,
    Unit,
    get_weather,
    messages_of_one_call,
)
from handrail.ports import Listener, Request
from handrail.testing import ScriptedServer


def get_weather_now(city: str, days: int = 1, unit: Unit = "celsius") -> dict[str, Any]:
    """Get the weather of a city."""
    return {"city": city, "days": days, "unit": unit, "temperature": 21.5}


class FakeModel:
    """Answers as `denominators.Provider` does, in handrail's own terms."""

    name = "fake"

    def __init__(
        self,
        turns: int,
        calls: int,
        pause_s: float = 0.0,
        write: Write = write_weather,
    ) -> None:
        self.turns, self.calls, self.pause_s = turns, calls, pause_s
        self.write = write

    async def ask(self, request: Request, listener: Listener | None = None) -> hr.Turn:
        """Answer, after the pause."""
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        turn = (len(request.messages) - 1) // (self.calls + 1)
        if turn >= self.turns:
            return hr.Turn("It is 21.5 degrees everywhere.", usage=hr.Usage(100, 20))
        calls = [
            hr.ToolCall(f"call_{turn}_{n}", *self.write(turn, n))
            for n in range(self.calls)
        ]
        return hr.Turn(calls=calls, finish="calls", usage=hr.Usage(100, 20))


UNBOUND = hr.Budget(time_s=None, calls=None, turns=None)


async def ten_by_four(quick: bool) -> list[Figure]:
    """10 turns of 4 calls, every check on, in memory."""
    provider, model, runtime = Provider(10, 4), FakeModel(10, 4), hr.Runtime([READ])

    async def ours() -> None:
        run = await runtime.run("How warm is it?", model=model)
        assert run.ok and run.spent.calls == 40, run

    times = await interleaved(
        {
            "hand": lambda: denominators.loop(provider),
            "prod": lambda: denominators.prod(provider),
            "bare": lambda: denominators.bare(provider),
            "handrail": ours,
        },
        rounds=5 if quick else 25,
        times=10,
    )
    hand = times["hand"]
    return [
        Figure("run of 10 turns x 4 calls: hand", hand / 40 * 1e6, "us a call"),
        Figure("  prod", times["prod"] / hand, "x hand"),
        Figure("  bare", times["bare"] / hand, "x hand"),
        Figure(
            "  handrail, every check on",
            times["handrail"] / hand,
            "x hand",
            2.0,
            usual=1.7,
        ),
    ]


def sync_tools(quick: bool) -> list[Figure]:
    """The same run with a sync tool: in threads, and in place for one that promises to be quick."""
    provider, model = Provider(10, 4), FakeModel(10, 4)
    kept = denominators.TOOLS["get_weather"]

    async def in_place(**arguments: Any) -> dict[str, Any]:
        return get_weather_now(**arguments)

    async def measure() -> dict[str, float]:
        denominators.TOOLS["get_weather"] = (in_place, kept[1])
        threads = hr.Runtime(
            [hr.FunctionTool(get_weather_now, name="get_weather", effect="read")]
        )
        quickly = hr.Runtime(
            [
                hr.FunctionTool(
                    get_weather_now, name="get_weather", effect="read", blocking=False
                )
            ]
        )
        return await interleaved(
            {
                "hand": lambda: denominators.loop(provider),
                "threads": lambda: threads.run("How warm is it?", model=model),
                "in place": lambda: quickly.run("How warm is it?", model=model),
            },
            rounds=5 if quick else 15,
            times=5,
        )

    times = asyncio.run(measure())
    denominators.TOOLS["get_weather"] = kept
    return [
        Figure(
            "sync tools, same run: in place (blocking=False)",
            times["in place"] / times["hand"],
            "x hand",
            2.0,
            usual=1.5,
        ),
        Figure(
            "  in threads (the default; hand calls in place)",
            times["threads"] / times["hand"],
            "x hand",
        ),
    ]


async def two_hundred_at_once(quick: bool) -> list[Figure]:
    """200 runs at once against a model that takes 10 ms: CPU, and memory of a run under way."""
    count = 50 if quick else 200
    provider, model, runtime = (
        Provider(5, 2, 0.01),
        FakeModel(5, 2, 0.01),
        hr.Runtime([READ]),
    )
    times = await interleaved(
        {
            "hand": lambda: asyncio.gather(
                *(denominators.loop(provider) for _ in range(count))
            ),
            "handrail": lambda: asyncio.gather(
                *(runtime.run("How warm?", model=model) for _ in range(count))
            ),
        },
        rounds=3 if quick else 7,
        times=1,
    )
    tracemalloc.start()
    runs = asyncio.gather(
        *(runtime.run("How warm?", model=model) for _ in range(count))
    )
    before = tracemalloc.get_traced_memory()[0]
    await asyncio.sleep(0.045)  # in the middle of the runs
    grown = tracemalloc.get_traced_memory()[0] - before
    await runs
    tracemalloc.stop()
    return [
        Figure(
            f"{count} runs at once, 10 ms model: CPU",
            times["handrail"] / times["hand"],
            "x hand",
            2.2,
            usual=2.0,
        ),
        Figure("  memory of a run under way", grown / count / 1024, "KB", 40.0),
    ]


async def length(quick: bool) -> list[Figure]:
    """Whether a long run costs more a turn than a short one; 20 is linear. The same with a window to stay within."""
    runtime = hr.Runtime([READ], budget=UNBOUND)
    short, long = FakeModel(10, 4), FakeModel(200, 4)
    longest, window = FakeModel(900, 4), replace(UNBOUND, context_tokens=10**9)
    times = await interleaved(
        {
            "10": lambda: runtime.run("?", model=short),
            "200": lambda: runtime.run("?", model=long),
            "900": lambda: runtime.run("?", model=longest),
            "900 in a window": lambda: runtime.run("?", model=longest, budget=window),
        },
        rounds=3 if quick else 9,
        times=1,
    )
    return [
        Figure(
            "t(200 turns) / t(10 turns), linear is 20",
            times["200"] / times["10"],
            "x",
            22.0,
            usual=19.0,
        ),
        Figure("900 turns x 4 calls", times["900"] / 3600 * 1e6, "us a call"),
        Figure(
            "  with context_tokens",
            times["900 in a window"] / 3600 * 1e6,
            "us a call",
            25.0,
            note=f"{times['900 in a window'] / times['900']:.2f} x without",
        ),
    ]


async def one_call(quick: bool) -> list[Figure]:
    """One call by `Runtime.call`: a read, and a write with its ledger; the read by `Runtime.handle` for each wire."""
    write = hr.FunctionTool(
        get_weather, name="set_weather", effect="write", write=hr.Write(repeatable=True)
    )
    runtime = hr.Runtime([READ, write])
    arguments = {"city": "北京", "days": 2}
    times = await interleaved(
        {
            "await": lambda: get_weather(**arguments),
            "read": lambda: runtime.call("get_weather", arguments),
            "write": lambda: runtime.call("set_weather", arguments),
            **{
                wire: partial(runtime.handle, message, dialect=wire)
                for wire, message in messages_of_one_call(arguments).items()
            },
        },
        rounds=5 if quick else 15,
        times=200,
    )
    return [
        Figure("one read by Runtime.call", times["read"] * 1e6, "us"),
        Figure(
            "one write by Runtime.call, ledger in memory", times["write"] * 1e6, "us"
        ),
        *(
            Figure(
                f"  the read by Runtime.handle, {wire}",
                times[wire] / times["read"],
                "x call",
                1.6,
                usual=usual,
            )
            for wire, usual in HANDLE_USUALLY.items()
        ),
    ]


def over_http(quick: bool) -> list[Figure]:
    """CPU of a client over real HTTP on the loopback interface, against the loop on the official SDK, both warm."""
    figures = []
    for wire in _ON_THE_SDK:
        for turns, goal in ((10, 0.15), (40, 0.05)):
            script: list[Any] = [
                [
                    hr.ToolCall(
                        f"call_{turn}_{n}", "get_weather", arguments_of(turn, n)
                    )
                    for n in range(4)
                ]
                for turn in range(turns)
            ]
            with ScriptedServer([*script, "done"], wire=wire) as server:
                times = asyncio.run(_clients(server, wire, rounds=2 if quick else 6))
            # The server runs in this process too; what it and the sockets cost is measured apart and taken off both.
            ours, sdk = (times[name] - times["raw"] for name in ("handrail", "sdk"))
            what = f"client CPU over HTTP, {turns} turns x 4 calls, {wire}"
            note = f"{ours * 1e3:.0f} of {sdk * 1e3:.0f} ms"
            # The goal was set against OpenAI's client, which walks the whole conversation again in every turn.
            figures.append(
                Figure(
                    what,
                    max(ours, 0.0) / sdk,
                    "x hand/SDK",
                    goal if wire == "openai-chat" else None,
                    note=note,
                )
            )
    return figures


async def _clients(server: ScriptedServer, wire: str, rounds: int) -> dict[str, float]:
    client_of, on_the_sdk = _ON_THE_SDK[wire]
    async with (
        hr.Runtime([READ], budget=UNBOUND) as runtime,
        client_of(server) as client,
    ):

        async def ours() -> None:
            run = await runtime.run("How warm is it?", model=server.model)
            assert run.ok, run

        await ours()
        asked = list(
            zip(
                server.paths,
                [json.dumps(body).encode() for body in server.requests],
                strict=True,
            )
        )

        async def raw() -> None:
            _raw(server, asked)

        return await interleaved(
            {"raw": raw, "sdk": lambda: on_the_sdk(client), "handrail": ours},
            rounds=rounds,
            times=1,
        )


def _raw(server: ScriptedServer, asked: Sequence[tuple[str, bytes]]) -> None:
    """What server and sockets cost: the same requests, replayed as bytes by the smallest client there is."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", int(server.base_url.split(":")[2].split("/")[0])
    )
    for path, body in asked:
        connection.request("POST", path, body, {"content-type": "application/json"})
        connection.getresponse().read()
    connection.close()


async def _on_openai(client: openai.AsyncOpenAI) -> None:
    tools: Any = hr.Toolset([READ]).definitions()
    messages: list[Any] = [{"role": "user", "content": "How warm is it?"}]
    while True:
        answer = await client.chat.completions.create(
            model="scripted", messages=messages, tools=tools
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        calls = [call.model_dump() for call in message.tool_calls]
        messages += await asyncio.gather(
            *(denominators.hand_call(call) for call in calls)
        )


async def _on_anthropic(client: anthropic.AsyncAnthropic) -> None:
    tools: Any = hr.Toolset([READ]).definitions("anthropic")
    messages: list[Any] = [{"role": "user", "content": "How warm is it?"}]
    while True:
        answer = await client.messages.create(
            model="scripted", max_tokens=1000, messages=messages, tools=tools
        )
        messages.append(
            {
                "role": "assistant",
                "content": [each.model_dump() for each in answer.content],
            }
        )
        calls = [
            {
                "id": each.id,
                "function": {"name": each.name, "arguments": json.dumps(each.input)},
            }
            for each in answer.content
            if each.type == "tool_use"
        ]
        if not calls:
            return
        told = await asyncio.gather(*(denominators.hand_call(call) for call in calls))
        results = [
            {
                "type": "tool_result",
                "tool_use_id": each["tool_call_id"],
                "content": each["content"],
            }
            for each in told
        ]
        messages.append({"role": "user", "content": results})


_ON_THE_SDK: dict[
    str, tuple[Callable[[ScriptedServer], Any], Callable[[Any], Awaitable[None]]]
] = {
    "openai-chat": (
        lambda server: openai.AsyncOpenAI(base_url=server.base_url, api_key="none"),
        _on_openai,
    ),
    "anthropic": (
        lambda server: anthropic.AsyncAnthropic(
            base_url=server.base_url.removesuffix("/v1"), api_key="none"
        ),
        _on_anthropic,
    ),
}
