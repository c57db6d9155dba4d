"""What a model left open is told apart from what somebody wants to write."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.calls import ToolCall
from handrail.core.placeholders import none_in, refusal
from handrail.dialects.wires import openai_chat
from handrail.errors import Code
from handrail.messages import AssistantMessage, Turn
from handrail.sync import SyncRuntime
from handrail.tools.function_tool import FunctionTool

FIND = ToolCall("call_1", "find_user", '{"name": "Ada"}')
PAY = ToolCall("7", "shop.pay", "{}")


LEFT_OPEN = [
    ({"user_id": "<user_id>"}, "`user_id`", "Find the value out first"),
    ({"userId": "<USER ID>"}, "`userId`", "Find the value out first"),
    ({"user_id": "{{user_id}}"}, "`user_id`", "Find the value out first"),
    ({"user_id": "${user_id}"}, "`user_id`", "Find the value out first"),
    ({"用户编号": "<用户编号>"}, "`用户编号`", "Find the value out first"),
    ({"to": {"user_id": "${{user_id}}"}}, "`to.user_id`", "Find the value out first"),
    ({"user_ids": ["u1", "<user_ids>"]}, "`user_ids[1]`", "Find the value out first"),
    ({"user": "<find_user>"}, "`user`", 'Call `find_user` first and use what it returns. .*"\\$var1.FIELD\\$"'),
    ({"user": "{{find_user.id}}"}, "`user`", '"\\$var1.FIELD\\$"'),
    ({"user": "<result of find_user>"}, "`user`", '"\\$var1.FIELD\\$"'),
    ({"user": "{find_user_result.id}"}, "`user`", '"\\$var1.FIELD\\$"'),
    ({"user": "[output of find_user]"}, "`user`", '"\\$var1.FIELD\\$"'),
    ({"user": "{{call_1.id}}"}, "`user`", '"\\$var1.FIELD\\$"'),
    ({"receipt": "<shop.pay.id>"}, "`receipt`", '"\\$var2.FIELD\\$"'),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "named", "advice"), LEFT_OPEN)
def test_a_value_that_was_left_open_is_refused_with_what_would_have_worked(
    arguments, named, advice
):
    assert not none_in(json.dumps(arguments, ensure_ascii=False))
    failure = refusal(arguments, [FIND, PAY])
    assert failure.code == Code.INVALID_ARGUMENTS
    assert failure.message.startswith(f"{named} is a placeholder, ")
    assert re.search(advice, failure.suggestion)


@pytest.mark.parametrize("arguments", [each[0] for each in LEFT_OPEN])
def test_none_reaches_a_tool(arguments):
    ran = []
    tools = [
        FunctionTool(
            lambda **given: ran.append(given),
            name=name,
            effect="read",
            parameters={"type": "object"},
        )
        for name in ("find_user", "shop.pay", "use")
    ]
    calls = [
        FIND,
        PAY,
        ToolCall("c3", "use", json.dumps(arguments, ensure_ascii=False)),
    ]
    told = SyncRuntime(tools).handle(
        openai_chat.DIALECT.encode_message(
            AssistantMessage(Turn(calls=calls, finish="calls"))
        )
    )
    assert (len(told), len(ran)) == (3, 2)
    assert json.loads(told[2]["content"])["error_code"] == "INVALID_ARGUMENTS"


@pytest.mark.parametrize("written", [
    '{"user_id": "<user_id>"}',
    r'{"user_id": "\u003cuser_id\u003e"}',  # as writers do that think of HTML
    "{'user_id': '<user_id>'}",
    "{“user_id”: “{{user_id}}”}",
])  # fmt: skip
@pytest.mark.parametrize("effect", ["read", "write"])
def test_none_does_however_its_text_is_spelled(written, effect):
    ran = []

    def use(user_id: str) -> None:
        """Use it."""
        ran.append(user_id)

    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "use", "arguments": written},
    }
    [told] = SyncRuntime([FunctionTool(use, effect=effect)]).handle(
        {"role": "assistant", "tool_calls": [call]}
    )
    assert ran == []
    assert "`user_id` is a placeholder" in told["content"]


@pytest.mark.parametrize("arguments", [
    {"html": "<b>"},
    {"html": "<p>user_id</p>"},
    {"text": "Dear <text>, welcome"},
    {"template": "{{greeting}}"},
    # a path such as /users/{user_id}, and nothing speaks of a result
    {"user_id": "{user_id}"},
    {"tags": "[find_user]"},
    {"ids": "[7]"},                        # an id that is a number only
    {"names": '["find_user", "result"]'},
    {"price": "$5"},
    {"user": "<somebody else>"},
    {"_": "<->"},
    {"user_id": "<user_id" + "x" * 200 + ">"},
    {"user_id": 7, "deep": [None, True, {"er": "user_id"}]},
])  # fmt: skip
def test_what_somebody_wants_to_write_is_not_refused(arguments):
    assert refusal(arguments, [FIND, PAY]) is None


@pytest.mark.parametrize("text", [
    "<search>", "{{search_query}}", '<input type="search">', "<https://example.org/search>", "<search@example.org>",
    "<!-- search -->", "[Search|search.*]", "{search.*}",
])  # fmt: skip
def test_a_tool_named_by_a_plain_word_refuses_no_markup_template_or_pattern_with_that_word(
    text,
):
    assert refusal({"x": text}, [ToolCall("call_1", "search", "{}")]) is None


@pytest.mark.parametrize(
    "text",
    ["{{search.id}}", "<search_result>", "[result of search]", "<id from search>"],
)
def test_a_result_of_a_tool_named_by_a_plain_word_is_a_placeholder(text):
    assert (
        "$var1.FIELD$"
        in refusal({"x": text}, [ToolCall("call_1", "search", "{}")]).suggestion
    )


@pytest.mark.parametrize("text", [
    r'{"user_id": "\u003cuser_id\u003e"}',         # as Go's encoder writes it
    r'{"user_id": "\u007b{user_id}}"}',
    "{'user_id': '<user_id>'}",
    '{"user_id": <user_id>}',
])  # fmt: skip
def test_a_placeholder_is_found_however_its_json_is_written(text):
    ran = []
    tool = FunctionTool(
        lambda **given: ran.append(given),
        name="use",
        effect="read",
        parameters={"type": "object"},
    )
    told = SyncRuntime([tool]).call("use", text)
    assert (told.failure.code, ran) == (Code.INVALID_ARGUMENTS, [])


def test_a_turn_of_many_calls_compiles_no_pattern_for_each_of_them(monkeypatch):
    monkeypatch.setattr(
        re, "escape", lambda name: pytest.fail(f"{name} is not in the text")
    )
    assert (
        refusal(
            {"x": "<b>"}, [ToolCall(f"call_{n}", "search", "{}") for n in range(100)]
        )
        is None
    )


def test_without_the_call_its_name_is_a_word_like_any_other():
    assert refusal({"user": "{{find_user.id}}"}, []) is None


LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(
    st.recursive(
        LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_holds_none_for_sure_holds_none(value):
    arguments = {"value": value}
    assert (
        not none_in(json.dumps(arguments, ensure_ascii=False))
        or refusal(arguments, [FIND, PAY]) is None
    )


def test_a_call_with_a_placeholder_does_not_run_and_the_reference_that_it_is_told_does():
    sent = []

    def find_user(name: str) -> dict[str, str]:
        """Find a user."""
        return {"id": f"u-{name}"}

    def greet(user_id: str) -> str:
        """Greet a user."""
        sent.append(user_id)
        return "done"

    runtime = SyncRuntime(
        [FunctionTool(find_user, effect="read"), FunctionTool(greet, effect="write")]
    )

    def answers(user_id):
        calls = [("find_user", {"name": "Ada"}), ("greet", {"user_id": user_id})]
        told = runtime.handle({"role": "assistant", "content": None, "tool_calls": [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls, 1)
        ]})  # fmt: skip
        return [each["content"] for each in told]

    refused = json.loads(answers("{{find_user.id}}")[1])
    assert (refused["error_code"], sent) == ("INVALID_ARGUMENTS", [])
    assert (
        answers(refused["suggestion"].split('"')[1].replace("FIELD", "id"))[1] == "done"
    )
    assert sent == ["u-Ada"]
