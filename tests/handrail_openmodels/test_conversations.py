"""Kinds of conversations beyond one question and one call, as the families' own templates lay them out.

Those of Mistral's tokenizers are what mistral-common 1.13.1 writes; it refuses text beside a call up to v3, and two
results of one answer in v2.
"""

import json

import pytest

import handrail as hr
from handrail.calls import ToolCall, ToolResult
from handrail.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.ports import Described

TOOL = Described(
    "get", "Get.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
IDS = "abcdefgh1", "abcdefgh2"


def said(text="", *ids):
    calls = tuple(ToolCall(id, "get", '{"city": "P"}') for id in ids)
    return AssistantMessage(
        Turn(text, calls=calls, finish="calls" if calls else "stop")
    )


def result(id, text):
    return ToolMessage(ToolResult(id, "get", value=text, text=text))


ASKED = UserMessage("Hi?")
BESIDE = [ASKED, said("Look.", IDS[0])]
RESULT = [ASKED, said("", IDS[0]), result(IDS[0], "21")]
RESULTS = [ASKED, said("", *IDS), result(IDS[0], "21"), result(IDS[1], "22")]
ANSWERED = [*RESULT, said("Warm.")]
AGAIN = [*ANSWERED, UserMessage("And?")]


def prompt(name, messages):
    """Return the prompt, with a word in place of the tools."""
    told = hr.dialect(name).encode_request(messages, [TOOL])
    function = {
        "name": TOOL.name,
        "description": TOOL.description,
        "parameters": TOOL.parameters,
    }
    return told.replace(
        json.dumps([{"type": "function", "function": function}]), "TOOLS"
    )


HERMES_CALL = (
    "\n<|im_start|>assistant\n<tool_call>\n"
    '{"name": "get", "arguments": {"city": "P"}}\n</tool_call><|im_end|>\n'
)
HERMES_RESULT = "<|im_start|>tool\n<tool_response>\n21\n</tool_response>"
LISTED = '[{"name": "get", "arguments": {"city": "P"}}]'


@pytest.mark.parametrize("name", ["hermes-2-pro", "hermes-vllm"])
@pytest.mark.parametrize(
    ("messages", "end"),
    [
        (BESIDE, f"{HERMES_CALL}<|im_start|>assistant\n"),
        (RESULT, f"{HERMES_CALL}{HERMES_RESULT}<|im_end|><|im_start|>assistant\n"),
        (
            ANSWERED,
            f"{HERMES_CALL}{HERMES_RESULT}\n<|im_end|><|im_start|>assistant\nWarm.<|im_end|>\n<|im_start|>assistant\n",
        ),
    ],
)
def test_hermes_leaves_out_text_beside_a_call_and_ends_results_with_a_line_where_more_follows(
    name, messages, end
):
    assert prompt(name, messages).endswith(end)


MISTRAL_KINDS = [
    (
        "mistral-v2",
        AGAIN,
        "<s>[INST] Hi?[/INST] Warm.</s>[AVAILABLE_TOOLS] TOOLS[/AVAILABLE_TOOLS][INST] And?[/INST]",
    ),
    (
        "mistral-v2",
        RESULT,
        f"<s>[AVAILABLE_TOOLS] TOOLS[/AVAILABLE_TOOLS][INST] Hi?[/INST][TOOL_CALLS] {LISTED}</s>"
        '[TOOL_RESULTS] [{"name": "get", "content": 21}][/TOOL_RESULTS]',
    ),
    (  # the tokenizer refuses two results, so each call is told with its own
        "mistral-v2",
        RESULTS,
        f"<s>[AVAILABLE_TOOLS] TOOLS[/AVAILABLE_TOOLS][INST] Hi?[/INST][TOOL_CALLS] {LISTED}</s>"
        f'[TOOL_RESULTS] [{{"name": "get", "content": 21}}][/TOOL_RESULTS][TOOL_CALLS] {LISTED}</s>'
        '[TOOL_RESULTS] [{"name": "get", "content": 22}][/TOOL_RESULTS]',
    ),
    (
        "mistral-v3",
        [SystemMessage("S"), *AGAIN],
        '<s>[INST] Hi?[/INST][TOOL_CALLS] [{"name": "get", "arguments": {"city": "P"}, "id": "abcdefgh1"}]</s>'
        '[TOOL_RESULTS] {"content": 21, "call_id": "abcdefgh1"}[/TOOL_RESULTS] Warm.</s>'
        "[AVAILABLE_TOOLS] TOOLS[/AVAILABLE_TOOLS][INST] S\n\nAnd?[/INST]",
    ),
    (
        "mistral-v7",
        BESIDE,
        "<s>[AVAILABLE_TOOLS] TOOLS[/AVAILABLE_TOOLS][INST] Hi?[/INST] Look.[TOOL_CALLS] "
        '[{"name": "get", "arguments": {"city": "P"}, "id": "abcdefgh1"}]</s>',
    ),
    (
        "mistral-v11",
        [SystemMessage("S"), *AGAIN],
        '<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]Hi?[/INST][TOOL_CALLS]get[CALL_ID]abcdefgh1[ARGS]{"city": "P"}</s>'
        "[TOOL_RESULTS]abcdefgh1[TOOL_CONTENT]21[/TOOL_RESULTS]Warm.</s>"
        "[AVAILABLE_TOOLS]TOOLS[/AVAILABLE_TOOLS][INST]And?[/INST]",
    ),
]


@pytest.mark.parametrize(("name", "messages", "whole"), MISTRAL_KINDS)
def test_mistral_tells_its_tools_before_the_last_question_and_v2_forgets_older_calls(
    name, messages, whole
):
    assert prompt(name, messages) == whole


@pytest.mark.parametrize(
    "name",
    ["mistral-v2", "mistral-v3", "mistral-v3-tekken", "mistral-nemo", "mistral-vllm", "mistral-vllm-parallel",
     "mistral-v11", "hermes-2-pro", "hermes-vllm", "llama3", "llama3-vllm", "llama3-pythonic"],
)  # fmt: skip
def test_a_template_that_has_no_place_for_text_beside_a_call_leaves_it_out(name):
    told = prompt(name, BESIDE)
    assert "Look." not in told
    assert told == prompt(name, [ASKED, said("", IDS[0])])


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (
            "llama4",
            "<|header_start|>assistant<|header_end|>\n\nLook.[get(city='P')]<|eot|>",
        ),
        ("qwen3-coder", "<|im_start|>assistant\nLook.\n\n<tool_call>\n<function=get>"),
        (
            "harmony",
            "<|start|>assistant<|channel|>commentary<|message|>Look.<|end|><|start|>assistant to=functions.get",
        ),
        ("qwen3", '<|im_start|>assistant\nLook.\n<tool_call>\n{"name": "get"'),
    ],
)
def test_text_beside_a_call_stands_where_the_template_has_it(name, answer):
    assert answer in prompt(name, BESIDE)
