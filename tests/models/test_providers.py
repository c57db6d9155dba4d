"""The table of providers: where each is, and how another address is named."""

import asyncio
from importlib import metadata

import pytest

import handrail as hr
from handrail import plugins
from handrail.errors import ConfigError
from handrail.events import HttpExchange
from handrail.models.providers import PROVIDERS
from handrail.testing import ScriptedServer

ELSEWHERE = "http://models.test:9000/v1"


def test_every_row_is_found_by_its_name_and_every_name_has_a_row():
    theirs = {point.name for point in metadata.entry_points(group="handrail.models")}
    assert {*plugins.list_names("models")} - theirs == {
        *PROVIDERS,
        *plugins.list_added("models"),
    }
    assert all(plugins.load("models", name) is row for name, row in PROVIDERS.items())
    assert all(name == row.name for name, row in PROVIDERS.items())


@pytest.mark.parametrize("row", PROVIDERS.values(), ids=PROVIDERS.keys())
def test_a_row_says_where_a_provider_is_what_it_speaks_and_where_its_key_is(row):
    assert row.address == row.address.rstrip("/")
    assert (
        row.address.startswith(("https://", "http://localhost:")) or row.name == "azure"
    )
    assert row.key_variable.endswith("_API_KEY")
    assert row.address_variable.endswith("_URL")
    header, colon, form = row.key_header.partition(": ")
    assert (header, colon, form.count("{key}")) == (header.lower(), ": ", 1)
    for spoken in filter(None, (row.dialect, row.compatible)):
        assert isinstance(hr.dialect(spoken), hr.dialects.WireDialect)


@pytest.mark.parametrize("row", PROVIDERS.values(), ids=PROVIDERS.keys())
def test_another_address_can_be_named_in_three_ways_and_needs_no_key(row):
    models = (
        row(f"m@{ELSEWHERE}", environment={}),
        row("m", base_url=ELSEWHERE, environment={}),
        row("m", environment={row.address_variable: ELSEWHERE}),
    )
    assert {(model.name, model.address) for model in models} == {("m", ELSEWHERE)}


@pytest.mark.parametrize("row", PROVIDERS.values(), ids=PROVIDERS.keys())
def test_a_key_is_demanded_of_everyone_but_a_server_on_this_machine(row):
    if row.address.startswith("http://localhost"):
        assert row("m", environment={}).address == row.address
    else:
        with pytest.raises(
            ConfigError, match=row.key_variable if row.address else row.address_variable
        ):
            row("m", environment={})
        assert row(
            "m",
            environment={
                row.key_variable: "k",
                row.address_variable: row.address or ELSEWHERE,
            },
        )


def run_once(model: object) -> tuple[str, list]:
    events: list = []

    async def main():
        async with hr.Runtime([], observers=[events.append]) as runtime:
            run = await runtime.run("?", model=model)
            await runtime._engine.resolve_model(model).aclose()
            return run.text

    return asyncio.run(main()), events


@pytest.mark.parametrize(("provider", "header", "shown"), [
    ("groq", "authorization", "Bearer ***"),
    ("azure", "api-key", "***"),
])  # fmt: skip
def test_a_key_is_sent_in_the_header_of_its_provider(provider, header, shown):
    with ScriptedServer(["hi"]) as server:
        text, events = run_once(
            PROVIDERS[provider](
                "m", base_url=server.base_url, api_key="secret", environment={}
            )
        )
    (exchange,) = [event for event in events if isinstance(event, HttpExchange)]
    assert (text, exchange.headers[header]) == ("hi", shown)


def test_a_run_may_name_a_provider_and_a_server_of_ones_own():
    with ScriptedServer(["hi"]) as server:
        assert run_once(f"ollama:qwen3@{server.base_url}")[0] == "hi"
        assert server.requests[0]["model"] == "qwen3"
