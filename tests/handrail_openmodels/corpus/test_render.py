"""Prompts of real chat templates and of Mistral's own tokenizer, to the last character."""

import html
import json
import re
from datetime import date

import pytest

import handrail as hr
from handrail.errors import ConfigError
from handrail.messages import ToolMessage, conversation_of
from handrail.ports import Described
from handrail_openmodels.prompts import mistral
from tests.support.corpus import rows

RENDERED = rows("dialects/render_cases.jsonl")
OFFICIAL = rows("dialects/mistral_official.jsonl")

DIALECTS = {
    "Qwen-Qwen2.5-7B-Instruct": "qwen2.5",
    "Qwen-Qwen3-0.6B": "qwen3",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes-2-pro",
    "vllm-hermes": "hermes-vllm",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3.1",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3.2",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3.3",
    "vllm-llama3.1_json": "llama3-vllm",
    "vllm-llama3.2_pythonic": "llama3-pythonic",
    "vllm-llama4_pythonic": "llama4",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral-nemo",
    "vllm-mistral": "mistral-vllm",
    "vllm-mistral_parallel": "mistral-vllm-parallel",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-v11",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3.5",
    "GLM-4.6": "glm4",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "moonshotai-Kimi-K2": "kimi-k2",
    "openai-gpt-oss-120b": "harmony",
    "MiniMax-M2": "minimax-m2",
    "LFM2.5-8B-A1B": "lfm2",
    "NVIDIA-Nemotron-Nano-v2": "nemotron-nano-v2",
    "vllm-granite": "granite3",
    "vllm-llama3.2_json": "llama3.2-vllm",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral-v13",
    "Kimi-K2-Thinking": "kimi-k2-thinking",
    "google-gemma-4-31B-it": "gemma4",
    "StepFun3.5-Flash": "step3.5",
    "Reka-Edge": "reka",
    "ByteDance-Seed-OSS": "seed-oss",
    "inclusionai-ling-3.0-flash": "ling3",
    "meetkai-functionary-medium-v3.1": "functionary-v3.1",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command-r7b",
}
"""Which dialect writes a template's prompts; those of other templates are not claimed to be exact."""


def without_quotes_of_calls(prompt):
    """The template writes text bare (`city=Paris`), which nobody reads as a call, or in the other quotes."""
    return re.sub(r"(?<==)['\"](\w+)['\"](?=[,)])", r"\1", prompt)


def mended(prompt):
    """The conversation itself holds a control token of the family, which is broken in ours."""
    return prompt.replace("< /tool_call>", "</tool_call>")


def without_tools_of_deepseek(prompt):
    """The template leaves out the tools, so that the model could not know of them; ours tells them."""
    return re.sub(
        r"\n\n## Tools\n.*without separators or spaces\n", "", prompt, flags=re.DOTALL
    )


def without_empty_thoughts(prompt):
    """The template forgets the empty thought of an answer once there is a new question; ours leaves it as it was."""
    return re.sub(r"<think>\n\n</think>\n+", "", prompt)


def without_layout(prompt):
    """The template writes the JSON of a call over many lines; ours has it as the model wrote it."""
    return re.sub(r"\s+", "", prompt)


def without_what_was_said(prompt):
    """The template leaves out the text beside a call as well."""
    return without_layout(prompt).replace("Letmecheck.", "")


def of_the_first_call(prompt):
    """The template leaves out all calls but the first, and tells the results of all; ours tells them one by one."""
    return prompt[: prompt.index('"25"')]


def before_the_call(prompt):
    """The template puts JSON and raw line ends among Python's literals; ours writes Python that reads back."""
    return prompt[: prompt.index("search_orders(")]


def in_any_order(prompt):
    """The template sorts the arguments of a call; ours leaves them as the model wrote them."""
    return sorted(prompt)


def without_what_was_said_before(prompt):
    """The template tells the text beside a call after its result; ours where it was said."""
    return prompt.replace("Let me check.<turn|>\n", "").replace("Let me check.", "")


def without_layout_mended(prompt):
    """The template has no line end between two arguments; one of them holds a control token, which ours breaks."""
    return without_layout(mended(prompt))


def in_json_s_quotes(prompt):
    """The template writes an object as Python would; the family's readers take JSON."""
    return prompt.replace("'", '"')


def in_characters(prompt):
    """The template writes Chinese as escapes; ours is as it was written."""
    characters = re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), prompt)
    return mended(characters)


FUNCTIONARY = "meetkai-functionary-medium-v3.1"

DIFFERENT = {
    "ByteDance-Seed-OSS/escapes": in_json_s_quotes,
    "Reka-Edge/two_tools_nested": in_characters,
    "Reka-Edge/escapes": in_characters,
    "StepFun3.5-Flash/call_result_answer": without_empty_thoughts,
    "StepFun3.5-Flash/escapes": mended,
    **{
        f"inclusionai-ling-3.0-flash/{case}": without_layout_mended
        for case in ("call_result", "call_result_answer", "escapes")
    },
    # The template escapes the quotes of its own JSON.
    **{
        row["id"]: html.unescape
        for row in RENDERED
        if row["template"] == FUNCTIONARY and row["tools"]
    },
    "google-gemma-4-31B-it/escapes": in_any_order,
    "google-gemma-4-31B-it/text_and_call": without_what_was_said_before,
    "vllm-llama3.2_pythonic/call_result": without_quotes_of_calls,
    "vllm-llama3.2_pythonic/parallel": without_quotes_of_calls,
    "vllm-llama4_pythonic/call_result": without_quotes_of_calls,
    "vllm-llama4_pythonic/parallel": without_quotes_of_calls,
    "Qwen3.5-4B/escapes": mended,
    "Qwen3.5-4B/call_result_answer": without_empty_thoughts,
    "deepseek-ai-DeepSeek-V3.1/one_tool": without_tools_of_deepseek,
    "deepseek-ai-DeepSeek-V3.1/no_system": without_tools_of_deepseek,
    "deepseek-ai-DeepSeek-V3.1/call_result": without_tools_of_deepseek,
    "deepseek-ai-DeepSeek-V3.1/parallel": without_tools_of_deepseek,
    "openai-gpt-oss-120b/parallel": of_the_first_call,
    "LFM2.5-8B-A1B/escapes": before_the_call,
    **{
        f"vllm-granite/{case}": without_layout
        for case in (
            "call_result",
            "call_result_answer",
            "parallel",
            "escapes",
            "tool_error",
        )
    },
    "vllm-granite/text_and_call": without_what_was_said,
}
"""Rows whose prompt differs on purpose: by what, which takes the difference away, and why, which it says."""

OFFICIAL_DIALECTS = {
    "mistral-common-v1": "mistral-v1",
    "mistral-common-v2": "mistral-v2",
    "mistral-common-v3": "mistral-v3",
    "mistral-common-v3_tekken": "mistral-v3-tekken",
    "mistral-common-v7": "mistral-v7",
    # recorded with a SentencePiece tokenizer: it has v7's spaces
    "mistral-common-v7_tekken": "mistral-v7",
}


def conversation(row):
    """Return a row's messages. Templates take arguments as objects, the chat form as text."""
    messages = json.loads(json.dumps(row["messages"]))
    for call in (
        call for message in messages for call in message.get("tool_calls", ())
    ):
        arguments = call["function"]["arguments"]
        if not isinstance(arguments, str):
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return conversation_of(messages)


def tools_of(row):
    functions = [tool["function"] for tool in row["tools"] or ()]
    return [
        Described(each["name"], each["description"], each["parameters"])
        for each in functions
    ]


def prompt_of(row, name):
    dialect = mistral.DIALECTS[name] if name == "mistral-v1" else hr.dialect(name)
    return dialect.on(date(2026, 11, 20)).encode_request(
        conversation(row), tools_of(row)
    )


def cases(kind):
    rendered = [row for row in RENDERED if row["template"] in DIALECTS]
    kinds = {
        "refused": [row for row in rendered if row["template_error"]],
        "different": [row for row in rendered if row["id"] in DIFFERENT],
    }
    kinds["exact"] = [
        row for row in rendered if not any(row in others for others in kinds.values())
    ]
    return [pytest.param(row, id=row["id"]) for row in kinds[kind]]


@pytest.mark.parametrize("row", cases("exact"))
def test_the_prompt_is_the_template_s_to_the_last_character(row):
    assert prompt_of(row, DIALECTS[row["template"]]) == row["expected_prompt"]


@pytest.mark.parametrize("row", cases("different"))
def test_a_prompt_that_differs_on_purpose_differs_in_what_is_named_and_in_nothing_else(
    row,
):
    ours, theirs = prompt_of(row, DIALECTS[row["template"]]), row["expected_prompt"]
    alike = DIFFERENT[row["id"]]
    assert ours != theirs
    assert alike(ours) == alike(theirs)


@pytest.mark.parametrize("row", cases("refused"))
def test_parallel_calls_that_a_template_refuses_are_told_one_after_the_other(row):
    assert "single tool-calls" in row["template_error"]
    first, second = (
        message for message in conversation(row) if isinstance(message, ToolMessage)
    )
    prompt = prompt_of(row, DIALECTS[row["template"]])
    marks = [
        '{"city": "Paris"}',
        first.result.text,
        '{"city": "Lyon"}',
        second.result.text,
    ]
    places = [prompt.rindex(mark) for mark in marks]
    assert places == sorted(places)
    assert prompt.count("ipython<|end_header_id|>") == 2


def plain(debug):
    """Return the text that mistral-common's debug text shows: `▁` is a space, and bytes are written in hex."""

    def text_of(run):
        return bytes.fromhex("".join(re.findall("<0x(..)>", run[0]))).decode()

    return re.sub(r"(?:<0x..>)+", text_of, debug).replace("▁", " ")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in OFFICIAL])
def test_the_prompt_is_mistral_common_s(row):
    name = OFFICIAL_DIALECTS[row["template"]]
    if row["error"]:
        with pytest.raises(ConfigError, match="has no tools"):
            prompt_of(row, name)
    else:
        assert prompt_of(row, name) == plain(row["expected_prompt_debug"])
