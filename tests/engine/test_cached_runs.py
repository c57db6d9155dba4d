"""What whole runs pay for their input: a server that counts a prefix cache, ten turns and more, sixty tools."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from examples.guide.prefix_cache import PrefixCache, input_price

import handrail as hr
from handrail.dialects.wires.openai_responses import OpenAIResponses
from handrail.messages import Usage
from handrail.models.http_model import HttpModel
from handrail.selectors.strategies import Searching
from handrail.testing import ScriptedServer, call

SUBJECTS = [
    "weather", "rain", "storm", "snow", "harbour", "tide", "train", "tram", "bus", "ferry", "flight", "hotel",
    "museum", "castle", "opera", "garden", "recipe", "bread", "cheese", "wine", "order", "refund", "invoice",
    "salary", "tax", "loan", "account", "ticket", "email", "letter", "calendar", "meeting", "contact", "phone",
    "printer", "server", "database", "backup", "deploy", "log", "metric", "alert", "password", "badge", "door",
    "lift", "heating", "solar", "battery", "engine", "wheel", "brake", "tyre", "paint", "brick", "roof", "window",
    "bridge", "river", "forest",
]  # fmt: skip
SYSTEM = "You help the people of a small town. " * 40
WIRES = {
    "anthropic": "claude-sonnet-4-5",
    "openai-responses": "gpt-5.4",
    "openai-chat": "gpt-5.4",
}


def describe(subject: str) -> hr.FunctionTool:
    def fn(name: str, since: str = "") -> str:
        return (
            f"{subject} of {name} since {since}: all is well. "
            + "Nothing else is known. " * 10
        )

    return hr.FunctionTool(
        fn,
        name=f"get_{subject}",
        effect="read",
        description=f"Get the {subject} of a place or a person, as the town's office knows it.",
    )


TOOLS = [describe(each) for each in SUBJECTS[:60]]


def converse(server, wire, store, text, *, selector="all", run_id=None, **how):
    """Run to the end, on a model that takes the server for the provider's own; or resume a run."""

    async def go():
        model = own_model(server.base_url, wire)
        how_stored = {} if store is None else {"store": store}
        async with hr.Runtime(TOOLS, selector=selector, **how_stored) as runtime:
            try:
                if run_id is not None:
                    return await runtime.resume(run_id, model=model, **how)
                return await runtime.run(text, model=model, **how)
            finally:
                await model.aclose()

    return asyncio.run(go())


def own_model(address: str, wire: str) -> HttpModel:
    """Return a model that takes the server for the provider's own."""
    return HttpModel(
        WIRES[wire],
        replace(hr.dialect(wire), server="own"),
        address,
        {},
        stream=False,
    )


def script(turns: int) -> list:
    return [
        *(call(f"get_{SUBJECTS[n]}", name="Rome") for n in range(turns - 1)),
        "All is well.",
    ]


def question(turns: int) -> str:
    return f"Look at {', '.join(SUBJECTS[: turns - 1])}."


def write_price(wire: str) -> float:
    return 1.25 if wire == "anthropic" else 1.0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("turns", "least"), [(10, 0.85), (20, 0.90)])
def test_a_run_reads_its_input_from_the_cache(wire, turns, least, tmp_path):
    with ScriptedServer(script(turns), wire=wire, cache=PrefixCache()) as server:
        run = converse(
            server, wire, f"sqlite:///{tmp_path}/s.db", question(turns), system=SYSTEM
        )
    assert run.ok and run.spent.turns == turns
    assert run.spent.cache_read_share >= least
    assert input_price(run.spent.usage, write_price=write_price(wire)) <= 0.27


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_is_read_where_a_cache_must_be_asked_for_and_is_not(wire):
    off = hr.Options(cache=None)
    with ScriptedServer(script(3), wire=wire, cache=PrefixCache()) as server:
        run = converse(server, wire, None, question(3), system=SYSTEM, options=off)
    assert (run.spent.usage.cached_tokens == 0) == (wire == "anthropic")


SEARCHES = [
    call("search_tools", query="cheese"), call("get_cheese", name="Rome"),
    call("search_tools", query="tyre of a car"), call("get_tyre", name="Rome"),
    call("search_tools", query="salary"), call("get_salary", name="Rome"),
    call("search_tools", query="museum"), call("get_museum", name="Rome"),
    call("get_cheese", name="Paris"), "All is well.",
]  # fmt: skip


class OpenAIThatSearches(OpenAIResponses):
    """OpenAI's side, which asks for a search of ours in an item of its own."""

    def decode_request(self, body):
        """Take searches for calls: a script counts answers with calls."""
        items = []
        for each in body["input"]:
            if each["type"] == "tool_search_call":
                arguments = json.dumps(each["arguments"])
                each = {**each, "type": "function_call", "name": "search_tools", "arguments": arguments}  # fmt: skip
            elif each["type"] == "tool_search_output":
                output = json.dumps(each["tools"])
                each = {**each, "type": "function_call_output", "output": output}
            items.append(each)
        return super().decode_request({**body, "input": items})

    def encode_turn(self, turn, envelope, tools=None):
        body = super().encode_turn(turn, envelope, tools)
        for item in body["output"]:
            if item.get("name") == "search_tools":
                item |= {"type": "tool_search_call", "execution": "client"}
                item["arguments"] = json.loads(item["arguments"])
                del item["name"]
        return body


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_a_run_that_searches_for_tools_reads_its_input_from_the_cache(wire, tmp_path):
    store = f"sqlite:///{tmp_path}/s.db"
    with ScriptedServer(SEARCHES, wire=wire, cache=PrefixCache()) as server:
        if wire == "openai-responses":
            server.wires[0] = OpenAIThatSearches()
        run = converse(
            server, wire, store, "Look at the rain, please.", system=SYSTEM * 4,
            selector=Searching(most=40),
        )  # fmt: skip
        first, *_, last = server.requests
    assert run.ok and run.spent.calls == 9
    assert run.spent.cache_read_share >= 0.85
    assert first["tools"] == [
        each for each in last["tools"] if not each.get("defer_loading")
    ]


RESUMED = """
import json, sys
from types import SimpleNamespace
from tests.engine.test_cached_runs import converse, hr
address, store, wire, run_id = sys.argv[1:]
server = SimpleNamespace(base_url=address)
run = converse(server, wire, store, "", run_id=run_id, budget=hr.Budget(turns=30))
print(json.dumps([run.status, run.spent.turns]))
"""


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_that_another_process_resumes_sends_the_same_bytes(wire, tmp_path):
    store = f"sqlite:///{tmp_path}/s.db"
    with ScriptedServer(script(20), wire=wire, cache=PrefixCache()) as server:
        run = converse(
            server, wire, store, question(20), system=SYSTEM, budget=hr.Budget(turns=5)
        )
        assert run.status == "budget"
        told = subprocess.run(
            [sys.executable, "-c", RESUMED, server.base_url, store, wire, run.id],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert json.loads(told.stdout) == ["done", 20]
        requests = server.requests
    assert len(requests) == 20
    usage = counted_again(wire, requests)
    assert usage[5].cache_read_share >= 0.8, "the first request of the other process"
    assert sum(usage, Usage()).cache_read_share >= 0.90


def send_note(name: str) -> str:
    """Send a note to a person of the town's office, who answers it in writing."""
    return f"{name} has it"


def test_a_step_that_follows_a_tool_and_a_second_question_leave_the_beginning(tmp_path):
    note = hr.FunctionTool(send_note, effect="read")

    def order(name: str) -> str:
        """Order something for a person, who gets a note of it."""
        return name

    then = hr.Then(note, {"name": "{name}"})
    tools = [hr.FunctionTool(order, effect="write", then=then), *TOOLS]
    script = [*(call("order", name=f"Ann {n}") for n in range(5)), "All is ordered."]
    store = f"sqlite:///{tmp_path}/s.db"

    async def go(server):
        model = own_model(server.base_url, "anthropic")
        async with hr.Runtime(tools, store=store, selector="all") as runtime:
            run = await runtime.run("Order for Ann.", model=model, system=SYSTEM)
            again = await runtime.run("And now?", model=model, after=run)
            await model.aclose()
        return run, again

    with ScriptedServer(script, wire="anthropic", cache=PrefixCache()) as server:
        run, again = asyncio.run(go(server))
        requests = server.requests
    assert run.ok and again.ok
    for before, after in pairwise(requests):
        first, longer = (
            [json.dumps(each) for each in one["messages"]] for one in (before, after)
        )
        assert longer[: len(first)] == first
        assert (after["tools"], after["system"]) == (before["tools"], before["system"])
    assert sum(counted_again("anthropic", requests), Usage()).cache_read_share >= 0.7
    assert again.spent.cache_read_share >= 0.9


def counted_again(wire: str, requests: list) -> list[Usage]:
    """Return the usage of each request at a cache that has seen none before."""
    cache = PrefixCache()
    return [cache.count(wire, each) for each in requests]
