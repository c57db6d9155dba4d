"""Orders that only a model would read: they are removed wherever a text of strangers comes in, and counted."""

import json

import pytest

import handrail as hr
from handrail import testing
from handrail.calls import Media
from tests.test_invisible import HIDDEN, TAGS

pytestmark = pytest.mark.anyio


def tool_returning(value, **declared):
    @hr.tool(**{"effect": "read", **declared})
    def look():
        """Look."""
        return value

    return look


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize(
    "declared", [{}, {"effect": "write"}, {"limits": hr.Limits(rate="9/s")}]
)
async def test_a_text_is_read_without_them_and_says_how_many_there_were(
    hidden, declared
):
    text = f"hello{hidden} world"
    async with hr.Runtime([tool_returning(text, **declared)]) as runtime:
        result = await runtime.call("look", {})
    assert result.text == (
        f"hello world\n[note: {len(hidden)} hidden characters were removed]"
    )
    assert result.value == text  # code gets what the tool returned


@pytest.mark.parametrize("size", [10, 100_000])
async def test_so_is_json_whole_or_cut_and_what_is_read_on(size):
    value = {"page": f"{TAGS}text" * size, "rows": [{f"na{TAGS}me": TAGS}] * 3}
    async with hr.Runtime([tool_returning(value)]) as runtime:
        result = await runtime.call("look", {}, run="r")
        texts = [result.text]
        if result.handle:
            further = await runtime.call(
                "read_result", {"handle": result.handle, "offset": 0}, run="r"
            )
            texts.append(further.text)
            # nothing is left to remove, so that offsets are those of what can be seen
            assert "hidden characters were removed" not in further.text
    assert not any(set(text) & set(TAGS) for text in texts)
    assert "hidden characters were removed" in result.note
    assert (size == 10) == (not result.handle)


async def test_what_can_be_seen_is_not_cut_for_what_cannot():
    text = TAGS * 10_000 + "the answer"
    async with hr.Runtime([tool_returning(text)]) as runtime:
        result = await runtime.call("look", {})
    assert result.text.startswith("the answer\n")


@pytest.mark.parametrize("length", [1, 10_000])
async def test_so_is_a_failure_in_every_part(length):
    @hr.tool(effect="read")
    def look() -> None:
        """Look."""
        words = f"not{TAGS} found" * length
        raise hr.ToolError("GONE", words, suggestion=words, details=[{"at": TAGS}])

    async with hr.Runtime([look]) as runtime:
        result = await runtime.call("look", {})
    shown = json.dumps([result.text, result.failure.as_json()], ensure_ascii=False)
    assert not set(shown) & set(TAGS)
    assert result.failure.code == "GONE"
    if length == 1:
        assert json.loads(result.text)["note"] == "30 hidden characters were removed"


async def test_the_next_message_to_the_model_has_none():
    model = testing.ScriptedModel([[testing.call("look")], "Done."])
    async with hr.Runtime([tool_returning(f"a{TAGS}b")]) as runtime:
        run = await runtime.run("?", model=model)
    (message,) = [each for each in run.messages if isinstance(each, hr.ToolMessage)]
    assert message.result.text.startswith("ab\n")


@pytest.mark.others
async def test_a_client_over_mcp_reads_none_either():
    from handrail_mcp.answers import write_answer

    values = [
        {"name": f"x{TAGS}"},
        [f"x{TAGS}", Media("image/png", b"1")],
    ]
    for value in values:
        async with hr.Runtime([tool_returning(value)]) as runtime:
            answer = write_answer(await runtime.call("look", {}))
        shown = answer.model_dump_json()
        assert not set(shown) & set(TAGS)
        assert "\\udb40" not in shown


@pytest.mark.others
async def test_descriptions_of_strangers_hide_nothing(tmp_path):
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {
            "/x": {
                "get": {
                    "operationId": "get_x",
                    "summary": f"Get x.{TAGS}",
                    "parameters": [
                        {
                            "name": "id",
                            "in": "query",
                            "description": f"Its id.{TAGS}",
                            "schema": {"type": "string"},
                        }
                    ],
                    "responses": {"200": {"description": "ok"}},
                }
            }
        },
    }
    place = tmp_path / "api.json"
    place.write_text(json.dumps(document))
    tools = hr.openapi(place)
    shown = json.dumps(tools.definitions("openai-chat"), ensure_ascii=False)
    assert "Its id." in shown
    assert not set(shown) & set(TAGS)
