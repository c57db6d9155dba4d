"""Every recorded exchange with the newest features of providers: decoded, carried back, gone on with, refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import handrail as hr
from handrail.errors import ModelError
from handrail.messages import AssistantMessage
from handrail.testing.contracts.dialects import in_pieces, read
from tests.support import wires
from tests.support.corpus import rows
from tests.support.effort import IS_LONG

WIRES = {
    "anthropic": "anthropic", "openai_responses": "openai-responses", "openai_chat": "openai-chat",
    "chat_compat": "openai-compatible", "gemini": "gemini", "gemini_interactions": "gemini-interactions",
}  # fmt: skip
HISTORY = {
    "anthropic": "messages", "openai-responses": "input", "gemini": "contents", "gemini-interactions": "input",
}  # fmt: skip
FINISHES = {
    "end_turn": "stop", "stop": "stop", "tool_use": "calls", "refusal": "refused", "max_tokens": "length",
    "length": "length", "pause_turn": "length", "model_context_window_exceeded": "length",
    "requires_action": "calls", "budget_exceeded": "length",
}  # fmt: skip

ASKING = {"apply_patch_call", "local_shell_call", "mcp_approval_request"}


def each_interaction() -> list[tuple[str, str, dict, dict | None]]:
    """Return the interactions on wires that we speak: an id, the wire's name, the interaction, the one after it."""
    return [
        (f"{row['id']}.{n}", WIRES[provider], this, then)
        for row in rows("wire/features.jsonl.gz")
        for n, (this, then) in enumerate(
            zip(row["interactions"], [*row["interactions"][1:], None], strict=True)
        )
        if (provider := this.get("provider", row["provider"])) in WIRES
        and this.get("expected")
    ]


def cases(takes) -> list:
    return [
        pytest.param(wire, this, then, id=id)
        for id, wire, this, then in each_interaction()
        if takes(this, then)
    ]


def is_answered(this, then=None) -> bool:
    return "error" not in this["expected"]


def is_stream(this, then=None) -> bool:
    return is_answered(this) and "body" not in this["response"]


def is_gone_on(this, then) -> bool:
    """Whether the next request is this one, its answer, and more."""
    if not (then and this.get("next") == "history" and is_answered(this)):
        return False
    asked, next_asked = this["request"], then["request"]
    key = next((key for key in HISTORY.values() if key in asked), "")
    history, longer = asked.get(key), next_asked.get(key)
    return isinstance(history, list) and unmarked(longer[: len(history)]) == unmarked(history)  # fmt: skip


def unmarked(value):
    """Return a document without marks of what to cache, which clients move on with each request."""
    if isinstance(value, dict):
        return {key: unmarked(each) for key, each in value.items() if key != "cache_control"}  # fmt: skip
    return [*map(unmarked, value)] if isinstance(value, list) else value


def finish_of(this: dict) -> str:
    """Return how the turn of an answer ends."""
    expected = this["expected"]
    stated = expected["finish"]
    if stated in ("completed", "STOP"):
        return "calls" if expected["calls"] or expected.get("waits") else "stop"
    if stated is not None or "body" in this["response"]:
        # a body that names no status, or one of which nobody knows the end, is no end
        return FINISHES.get(stated, "error")
    return "calls"


def is_run_by_the_provider(block: dict) -> bool:
    """Whether a block is a call that the provider answers, or its result: no question to us, and no mere source."""
    asks_us = block.get("type") in ASKING or block.get("execution") == "client"
    return not (asks_us or "groundingMetadata" in block)


def arguments_of(call: dict) -> object:
    if "custom_input" in call:
        return {"input": call["custom_input"]}
    given = call.get("arguments")
    return json.loads(given) if isinstance(given, str) else given


def test_no_recorded_interaction_is_left_out():
    recorded = [each for row in rows("wire/features.jsonl.gz") for each in row["interactions"]]  # fmt: skip
    assert len(each_interaction()) == len(recorded)
    assert len(cases(is_answered)) + len(REFUSED) + len(BROKEN) == len(recorded)
    assert len(cases(is_gone_on)) == sum(each.get("next") == "history" for each in recorded)  # fmt: skip
    assert len(STORED) == sum(each.get("next") == "stored" for each in recorded)
    misused = {id for id, _, this, _ in each_interaction() if "misuse" in this["expected"]}  # fmt: skip
    assert misused <= {*MISUSE, LOST_NAMESPACE}


@pytest.mark.parametrize(("wire", "this", "then"), cases(is_answered))
def test_an_answer_is_decoded_as_expected(wire, this, then):
    turn, expected = (
        wires.answered(hr.dialect(wire), this["response"]),
        this["expected"],
    )
    assert turn.text == expected["text"]
    told = [
        (call.id, call.name, json.loads(call.arguments or "{}")) for call in turn.calls
    ]
    # where an answer has no ids we make some
    assert told == [
        (each["id"] or own[0], each["name"], arguments_of(each))
        for each, own in zip(expected["calls"], told, strict=True)
    ]
    assert turn.finish == finish_of(this)
    if expected.get("waits"):
        assert turn.finish != "stop", "a turn that waits never looks finished"
    assert turn.reasoning == expected.get("reasoning_text", turn.reasoning)
    blocks = [each for each in turn.server_side if is_run_by_the_provider(each)]
    assert len(blocks) == (expected.get("server_side_blocks") or 0)
    reported = json.dumps([dict(each) for each in turn.server_side])
    for called in expected.get("server_calls", ()):
        assert json.dumps(called["id"]) in reported
    for found in expected.get("tool_references", ()):
        assert json.dumps(found) in reported
    if expected.get("interaction_id"):
        assert turn.raw["id"] == expected["interaction_id"]
    if explanation := (expected.get("stop_details") or {}).get("explanation"):
        assert turn.refusal == explanation
    usage = expected.get("usage") or {}
    if usage:
        counts = turn.usage
        assert counts.input_tokens == usage["input_total"] + usage.get(
            "tool_use_input", 0
        )
        assert counts.output_tokens == usage["output_total"]
        assert counts.cached_tokens == usage.get("cache_read", 0)
        assert counts.cache_written_tokens == usage.get("cache_written", 0)
        assert counts.reasoning_tokens == usage.get("reasoning", 0)


@pytest.mark.parametrize(("wire", "this", "then"), cases(is_stream))
def test_a_stream_is_decoded_the_same_cut_anywhere(wire, this, then):
    dialect, whole = hr.dialect(wire), wires.stream_bytes(this["response"])
    deltas, turn = read(dialect.stream(), [whole])
    again, other = read(dialect.stream(), in_pieces(whole, range(len(whole))))
    assert (again, other) == (deltas, turn)
    assert (other.raw, other.server_side) == (turn.raw, turn.server_side)
    for cut in range(0, len(whole), 1 if IS_LONG else max(1, len(whole) // 5)):
        again, other = read(dialect.stream(), [whole[:cut], whole[cut:]])
        assert (again, other, other.raw) == (deltas, turn, turn.raw)


def earlier(wire: str, this: dict) -> list[AssistantMessage]:
    """Return an answer with the programs whose calls the answer holds: they stand in an earlier one."""
    programs = {
        carried["value"]["tool_id"]
        for carried in this["expected"]["carry"]
        if carried["field"] == "caller" and "tool_id" in carried["value"]
    }
    if wire != "anthropic" or not programs:
        return []
    blocks = [
        {"type": "server_tool_use", "id": each, "name": "code_execution", "input": {}}
        for each in sorted(programs)
    ]
    body = {"content": blocks, "stop_reason": "pause_turn"}
    return [AssistantMessage(hr.dialect(wire).decode(body))]


def values_in(value) -> list:
    """Return a document and everything in it."""
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return [value, *(each for one in inner for each in values_in(one))]


@pytest.mark.parametrize(
    ("wire", "this", "then"),
    cases(lambda this, then: is_answered(this) and this["expected"].get("carry")),
)
def test_what_must_go_back_goes_back_byte_for_byte(wire, this, then):
    dialect = hr.dialect(wire)
    if wire == "anthropic":
        dialect = replace(dialect, clock=lambda: 0.0)  # when no container had expired
    turn = wires.answered(dialect, this["response"])
    said = [hr.UserMessage("?"), *earlier(wire, this), AssistantMessage(turn)]
    said += [
        hr.ToolMessage(hr.ToolResult(each.id, each.name, value="ok", text="ok"))
        for each in turn.calls
    ]
    sent = dialect.encode_request([*said, hr.UserMessage("Go on.")])
    there = values_in(json.loads(json.dumps(sent)))
    objects = [each for each in there if isinstance(each, dict)]
    for carried in this["expected"]["carry"]:
        wanted = [carried["value"], *carried.get("also", ())]
        if carried.get("as") == "container":
            assert sent["container"] in wanted
            continue
        field = carried["field"].rpartition(".")[2]
        assert any(
            each in objects or any(one.get(field) == each for one in objects)
            for each in wanted
        ), carried


CALLS_AND_RESULTS = {
    "tool_use", "tool_result", "function_call", "function_call_output", "functionCall", "functionResponse",
    "function_result",
}  # fmt: skip
DIRECT = {"type": "direct"}


def outline(wire: str, items: list) -> list[dict]:
    """Return the calls and the results of a history, by what decides whether a provider takes them."""
    blocks = []
    for item in items:
        if wire == "anthropic":
            blocks += item["content"] if isinstance(item["content"], list) else []
        elif wire == "gemini":
            blocks += [
                {"type": kind, **part[kind]}
                for part in item["parts"]
                for kind in part
                if "function" in kind
            ]
        else:
            blocks.append(item)
    names = ["tool_use_id", "call_id", "name", "caller", "namespace", "input", "args"]
    # OpenAI's ids of items, and Gemini's, which has none, are the clients' own
    names += ["id"] if wire == "anthropic" else []
    return [
        {name: each[name] for name in names if each.get(name) not in (None, DIRECT)}
        for each in blocks
        if each.get("type") in CALLS_AND_RESULTS and not is_made_by_a_client(each)
    ]


def is_made_by_a_client(block: dict) -> bool:
    """Whether a call was never the model's: a client has loaded a tool by itself."""
    return str(block.get("id") or block.get("tool_use_id")).startswith("auto_load_")


@pytest.mark.parametrize(("wire", "this", "then"), cases(is_gone_on))
def test_the_recorded_next_request_is_rebuilt(wire, this, then):
    dialect, key = hr.dialect(wire), HISTORY[wire]
    history, longer = this["request"][key], then["request"][key]
    before = dialect.decode_conversation({key: history})
    added = dialect.decode_conversation({key: longer[len(history) :]})
    turn = wires.answered(dialect, this["response"])
    results = [each for each in added if not isinstance(each, AssistantMessage)]
    rebuilt = dialect.encode_request([*before, AssistantMessage(turn), *results])[key]
    ours, recorded = outline(wire, rebuilt), outline(wire, longer)
    for each, other in zip(ours, recorded, strict=True):
        if "namespace" not in each:  # nor in the answer: that client has added it
            other.pop("namespace", None)
    assert ours == recorded


STORED = cases(lambda this, then: this.get("next") == "stored")


@pytest.mark.parametrize(("wire", "this", "then"), STORED)
def test_a_request_that_goes_on_from_a_stored_answer_is_rebuilt(wire, this, then):
    dialect = hr.dialect(wire)
    turn = wires.answered(dialect, this["response"])
    recorded = then["request"]
    [field] = [key for key in recorded if key.startswith("previous_")]
    added = dialect.decode_conversation({"input": recorded["input"]})
    extra = {"store": True, field: turn.raw["id"]}
    sent = dialect.encode_request(added, options=hr.Options(extra=extra))
    assert sent[field] == recorded[field]
    assert sent["input"] == recorded["input"]


REFUSED = cases(lambda this, then: not is_answered(this) and "body" in this["response"])
BROKEN = cases(
    lambda this, then: not is_answered(this) and "body" not in this["response"]
)


@pytest.mark.parametrize(("wire", "this", "then"), REFUSED)
def test_a_refused_request_is_classified_and_not_tried_again(wire, this, then):
    response = this["response"]
    error = hr.dialect(wire).classify(response["status"], {}, response["body"])
    assert isinstance(error, ModelError)
    assert (error.status, error.retryable) == (400, False)


@pytest.mark.parametrize(("wire", "this", "then"), BROKEN)
def test_an_error_in_a_stream_is_classified_wherever_it_is_cut(wire, this, then):
    whole = wires.stream_bytes(this["response"])
    expected = this["expected"]["error"]
    for pieces in ([whole], *([whole[:cut], whole[cut:]] for cut in range(len(whole)))):
        deltas, error = read(hr.dialect(wire).stream(), pieces)
        assert isinstance(error, ModelError)
        assert error.retryable and expected["message"] in str(error)
        assert "".join(each.text for each in deltas) == this["expected"]["text"]


ANSWER = '"tool_result", "tool_use_id": '
MISUSE = {
    "anthropic-f-0043901b8f.1": lambda sent: '"container": {' not in sent,
    "anthropic-f-c3987eb793.0": lambda sent: "caller" not in sent,
    "anthropic-f-fb4b687943.0": lambda sent: f'{ANSWER}"srvtoolu_' not in sent,
    "anthropic-f-8b4fb35ead.0": lambda sent: "tool_result" not in sent,
    "anthropic-f-d63d771619.0": lambda sent: f'{ANSWER}"toolu_issue8112' in sent,
    "openai_responses-f-36fc3863a6.0": lambda sent: '"arguments": "{}"' in sent,
    "openai_responses-f-62773756df.0": lambda sent: "call_output" not in sent,
}
"""What the request that we build of the same conversation has or lacks, by the refused one's id."""

LOST_NAMESPACE = "openai_responses-f-07c9d8b0fb.0"


@pytest.mark.parametrize("id", MISUSE)
def test_the_request_that_was_refused_cannot_be_built(id):
    (wire, this) = next(
        (wire, this) for each, wire, this, _ in each_interaction() if each == id
    )
    dialect = hr.dialect(wire)
    assert not MISUSE[id](json.dumps(this["request"]))
    messages, tools, options = dialect.decode_request(this["request"])
    assert MISUSE[id](json.dumps(dialect.encode_request(messages, tools, options)))


def test_a_call_of_a_namespaced_tool_cannot_lose_its_namespace():
    """The seventh misuse begins with what a provider sent, which goes back whole."""
    item = {
        "type": "function_call",
        "call_id": "c1",
        "name": "create_widget",
        "namespace": "widgets",
        "arguments": "{}",
    }
    dialect = hr.dialect("openai-responses")
    turn = dialect.decode({"status": "completed", "output": [item]})
    sent = dialect.encode_request([hr.UserMessage("?"), AssistantMessage(turn)])
    assert [each.get("namespace") for each in sent["input"]][1] == "widgets"
