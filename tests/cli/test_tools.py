"""`handrail tools`: what a model will be told."""

import json
import re

import pytest

from tests.support.weather import TOOLS, every_wire


def test_the_list_says_what_each_tool_does_and_when_a_person_is_asked(cli, shop):
    rows = [
        re.split("  +", line)
        for line in cli("tools", "list", "--tools", shop).stdout.splitlines()
    ]
    assert rows[0] == ["tool", "effect", "risk", "asks a person", "summary"]
    assert rows[1] == ["get_order", "read", "low", "no", "Look an order up."]
    assert rows[3] == [
        "delete_order",
        "destructive",
        "high",
        "always",
        "Delete an order.",
    ]


def test_the_list_as_json_is_one_document(cli, shop):
    document = json.loads(cli("tools", "list", "--tools", shop, "--json").stdout)
    assert document["v"] == 1
    assert [tool["name"] for tool in document["tools"]] == [
        "get_order",
        "note",
        "delete_order",
        "drop_all",
        "pay",
    ]
    assert document["tools"][3]["permission"] == "admin"


def test_a_tool_is_shown_with_its_arguments(cli, shop):
    assert '"order_id"' in cli("tools", "show", "get_order", "--tools", shop).stdout
    document = json.loads(
        cli("tools", "show", "get_order", "--tools", shop, "--json").stdout
    )
    assert document["parameters"]["required"] == ["order_id"]


def test_definitions_are_printed_as_they_go_over_the_wire(cli, shop):
    definitions = json.loads(
        cli(
            "tools", "schema", "get_order", "--tools", shop, "--format", "openai-chat"
        ).stdout
    )
    assert definitions[0]["type"] == "function"
    assert definitions[0]["function"]["name"] == "get_order"


@pytest.mark.parametrize("wire", every_wire(), ids=lambda wire: wire.name)
def test_every_wire_is_a_format(cli, weather, wire):
    words = ("get_weather", "--tools", weather, "--format", wire.name)
    defined = wire.definitions(TOOLS)
    assert json.loads(cli("tools", "schema", *words).stdout) == defined
    assert (
        json.loads(cli("tools", "show", *words, "--json").stdout)[wire.name] == defined
    )
    assert (
        json.loads(cli("tools", "show", *words).stdout.partition(f"\n{wire.name}\n")[2])
        == defined
    )


def test_a_prompt_is_no_format_and_the_command_that_shows_it_is_named(
    cli, weather, call_lines
):
    result = cli("tools", "schema", "--tools", weather, "--format", call_lines)
    assert result.exit_code == 2
    assert "handrail render --dialect call-lines" in result.stderr


def test_plain_schemas_are_by_name(cli, shop):
    schemas = json.loads(cli("tools", "schema", "--tools", shop).stdout)
    assert list(schemas) == ["get_order", "note", "delete_order", "drop_all", "pay"]
    assert schemas["note"]["type"] == "object"


@pytest.mark.parametrize(("words", "says"), [
    (["list"], "--tools"),
    (["show", "get_ordr", "--tools", "SHOP"], "did you mean 'get_order' or 'delete_order'?"),
    (["show", "zzz", "--tools", "SHOP"], "there are get_order, note, delete_order, drop_all, pay\n"),
    (["schema", "--tools", "SHOP", "--format", "morse"], "the formats are json, mcp, openai-chat"),
])  # fmt: skip
def test_a_mistake_is_told(cli, shop, words, says):
    result = cli("tools", *(shop if word == "SHOP" else word for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_tool_is_shown_with_what_its_caller_must_fill(cli, tenants):
    assert (
        "filled by the caller  tenant\n"
        in cli("tools", "show", "orders_of", "--tools", tenants).stdout
    )


@pytest.mark.parametrize(("name", "shown"), [("get_order", "30"), ("pay", "0.05")])
def test_times_are_shown_alike_however_they_were_written(cli, shop, name, shown):
    rows = [
        re.split("  +", line)
        for line in cli("tools", "show", name, "--tools", shop).stdout.splitlines()
    ]
    assert ["timeout s", shown] in rows


SERVICE = "examples/service.json"


@pytest.mark.others
def test_an_openapi_document_is_shown_as_tools_with_what_is_left_out(cli):
    told = cli("tools", "from-openapi", SERVICE)
    rows = [re.split("  +", line) for line in told.stdout.splitlines()]
    assert rows[2] == [
        "deleteOrder",
        "destructive",
        "always",
        "DELETE /orders/{order_id}",
        "Delete one order for good.",
    ]
    assert (
        "left out: addPicture (POST /pictures): its body is application/xml"
        in told.stderr
    )
    document = json.loads(
        cli("tools", "from-openapi", SERVICE, "--json", "--include", "get*").stdout
    )
    assert [tool["route"] for tool in document["tools"]] == ["GET /orders/{order_id}"]


@pytest.mark.others
def test_an_openapi_document_is_printed_as_definitions(cli):
    told = json.loads(
        cli("tools", "from-openapi", SERVICE, "--format", "anthropic").stdout
    )
    assert [each["name"] for each in told] == ["getOrder", "deleteOrder", "placeOrder"]


@pytest.mark.others
def test_a_service_is_a_place_of_tools_whose_credentials_stand_in_the_environment(
    cli, monkeypatch
):
    words = (
        "call",
        "getOrder",
        '{"order_id": "A-1"}',
        "--tools",
        f"openapi:{SERVICE}@http://127.0.0.1:9",
    )
    assert "needs credentials" in cli(*words).stderr
    monkeypatch.setenv("HANDRAIL_AUTH_API_KEY", "k-4711")
    told = cli(*words)
    assert (
        "cannot be reached" in told.stderr and "k-4711" not in told.stdout + told.stderr
    )


@pytest.mark.others
@pytest.mark.parametrize(("file", "said"), [
    ("absent.json", "No such file"),
    ("README.md", "is not JSON"),
    ("https://shop.example/openapi.json", "nothing is fetched; save it in a file first"),
    ("examples/service.json@localhost:8000", "'localhost:8000' does not begin with http:// or https://"),
])  # fmt: skip
def test_a_document_that_cannot_be_read_is_one_sentence(cli, file, said):
    told = cli("tools", "list", "--tools", f"openapi:{file}")
    assert (told.exit_code, len(told.stderr.splitlines())) == (
        2,
        1,
    ) and said in told.stderr
