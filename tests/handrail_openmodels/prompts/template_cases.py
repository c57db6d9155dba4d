"""Kinds of conversation, the chat templates of the families, and what of a prompt may differ from them and why.

The templates ship in public packages (llama-cpp-python 0.3.36 and, with `vllm-` before the name, vllm 0.33.0, both as
source) and are not copied into the project. What they give is recorded as digests in `template_digests.json`:

    python -m tests.handrail_openmodels.prompts.template_cases FOLDER

writes them anew from a folder with the templates, and prints each prompt that differs in anything that is not named.
"""

import difflib
import hashlib
import html
import json
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import ClassVar

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import SandboxedEnvironment
from msgspec.structs import replace

import handrail as hr
from handrail.messages import AssistantMessage, conversation_of
from handrail.ports import Described

TODAY = date(2026, 11, 20)
DIGESTS = Path(__file__).with_name("template_digests.json")

# ---------------------------------------------------------------------- kinds of conversation

_WEATHER = (
    "get_weather",
    "Get the current weather for a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City name"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
)
_ITEM = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
    },
    "required": ["sku", "count"],
}
_ORDERS = (
    "search_orders",
    "Search orders.\nBy items.",
    {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": _ITEM},
            "paid": {"type": "boolean", "default": False},
        },
        "required": ["items"],
    },
)
_NOW = ("now", "Tell the time.", {"type": "object", "properties": {}})

_SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
_PARIS = ("call00001", "get_weather", {"city": "Paris"})
_LYON = ("call00002", "get_weather", {"city": "Lyon", "unit": "celsius"})
_SEARCH = (
    "call00003",
    "search_orders",
    {"items": [{"sku": "a-1", "count": 2}], "paid": True},
)
_WHEN = ("call00004", "now", {})
_BEIJING = ("call00005", "get_weather", {"city": '北京\n"区" \\ <b>'})


def _asks(text):
    return {"role": "user", "content": text}


def _answers(text="", *calls, thinks=""):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for id, name, arguments in calls
        ]
    if thinks:
        message["reasoning_content"] = thinks
    return message


def _gives(call, text):
    id, name, _ = call
    return {"role": "tool", "tool_call_id": id, "name": name, "content": text}


_WARM = _gives(_PARIS, '{"temp": 25}')
_MILD = _gives(_LYON, '{"temp": 21}')
_ASKED = [_SYSTEM, _asks("Weather?")]
_TOLD = [*_ASKED, _answers("", _PARIS), _WARM]

KINDS = {
    "question": ([_SYSTEM, _asks("Hi")], []),
    "no system": ([_asks("Hi")], []),
    "tool": (_ASKED, [_WEATHER]),
    "no system, tool": ([_asks("Weather?")], [_WEATHER]),
    "two tools": ([_SYSTEM, _asks("天气?")], [_WEATHER, _ORDERS]),
    "several questions": (
        [_SYSTEM, _asks("Hi"), _answers("Hello."), _asks("Weather?")],
        [_WEATHER],
    ),
    "several questions, no tool": (
        [_SYSTEM, _asks("Hi"), _answers("Hello."), _asks("Bye?")],
        [],
    ),
    "result": (_TOLD, [_WEATHER]),
    "no system, result": (_TOLD[1:], [_WEATHER]),
    "text beside a call": (
        [*_ASKED, _answers("Let me check.", _PARIS), _WARM],
        [_WEATHER],
    ),
    "several results": (
        [*_ASKED, _answers("", _PARIS, _LYON), _WARM, _MILD],
        [_WEATHER],
    ),
    "text beside several calls": (
        [*_ASKED, _answers("Let me check.", _PARIS, _LYON), _WARM, _MILD],
        [_WEATHER],
    ),
    "result, answer": ([*_TOLD, _answers("It is 25.")], [_WEATHER]),
    "result, answer, question": (
        [*_TOLD, _answers("It is 25."), _asks("And Lyon?")],
        [_WEATHER],
    ),
    "two steps": ([*_TOLD, _answers("", _LYON), _MILD], [_WEATHER]),
    "calls before the last question": (
        [
            *_TOLD,
            _answers("", _LYON),
            _MILD,
            _answers("Done."),
            _asks("Again?"),
            _answers("", _SEARCH),
            _gives(_SEARCH, "none"),
        ],
        [_WEATHER, _ORDERS],
    ),
    "reasoning, answer": (
        [_SYSTEM, _asks("Hi"), _answers("Hello.", thinks="They greet me.")],
        [],
    ),
    "reasoning, call": (
        [*_ASKED, _answers("", _PARIS, thinks="I need the tool."), _WARM],
        [_WEATHER],
    ),
    "reasoning, text, call": (
        [*_ASKED, _answers("Let me check.", _PARIS, thinks="I need the tool."), _WARM],
        [_WEATHER],
    ),
    "reasoning in two steps": (
        [
            *_ASKED,
            _answers("", _PARIS, thinks="I need the tool."),
            _WARM,
            _answers("", _LYON, thinks="And Lyon."),
            _MILD,
        ],
        [_WEATHER],
    ),
    "reasoning before the last question": (
        [
            *_ASKED,
            _answers("", _PARIS, thinks="I need the tool."),
            _WARM,
            _answers("It is 25.", thinks="Simple."),
            _asks("And Lyon?"),
        ],
        [_WEATHER],
    ),
    "nested arguments": (
        [_SYSTEM, _asks("Orders?"), _answers("", _SEARCH), _gives(_SEARCH, "none")],
        [_WEATHER, _ORDERS],
    ),
    "no arguments": (
        [_SYSTEM, _asks("Now?"), _answers("", _WHEN), _gives(_WHEN, "noon")],
        [_NOW],
    ),
    "Chinese, quotes, line ends": (
        [
            _SYSTEM,
            _asks('引号"和\n换行'),
            _answers("", _BEIJING),
            _gives(_BEIJING, "晴\n25"),
        ],
        [_WEATHER],
    ),
    "empty result": (
        [*_ASKED, _answers("", _PARIS), _gives(_PARIS, "")],
        [_WEATHER],
    ),
    "two questions in a row": ([_SYSTEM, _asks("Hi"), _asks("There")], []),
    "empty question": ([_SYSTEM, _asks("")], []),
    "late system": (
        [
            _SYSTEM,
            _asks("Hi"),
            _answers("Hello."),
            {"role": "system", "content": "Be brief."},
            _asks("Bye?"),
        ],
        [],
    ),
    "picture": (
        [
            _SYSTEM,
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {
                        "type": "image_url",
                        "image_url": {"url": "https://example.com/a.png"},
                    },
                ],
            },
        ],
        [],
    ),
}
"""The messages in the chat form, with arguments as objects as templates take them, and the tools."""

# ---------------------------------------------------------------------- families

_LLAMA = {"bos_token": "<|begin_of_text|>", "date_string": "20 Nov 2026"}
_MISTRAL = {"bos_token": "<s>", "eos_token": "</s>"}
_DEEPSEEK = {"bos_token": "<｜begin▁of▁sentence｜>"}

FAMILIES = {
    "qwen2.5": ("Qwen-Qwen2.5-7B-Instruct", {}),
    "qwen3": ("Qwen-Qwen3-0.6B", {}),
    "hermes-2-pro": ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", _LLAMA),
    "hermes-vllm": ("vllm-hermes", _LLAMA),
    "llama3.1": ("meta-llama-Llama-3.1-8B-Instruct", _LLAMA),
    "llama3.2": ("meta-llama-Llama-3.2-3B-Instruct", _LLAMA),
    "llama3.3": ("meta-llama-Llama-3.3-70B-Instruct", _LLAMA),
    "llama3-vllm": ("vllm-llama3.1_json", _LLAMA),
    "llama3.2-vllm": ("vllm-llama3.2_json", _LLAMA),
    "llama3-pythonic": ("vllm-llama3.2_pythonic", _LLAMA),
    "llama4": ("vllm-llama4_pythonic", _LLAMA),
    "mistral-nemo": ("mistralai-Mistral-Nemo-Instruct-2407", _MISTRAL),
    "mistral-vllm": ("vllm-mistral", _MISTRAL),
    "mistral-vllm-parallel": ("vllm-mistral_parallel", _MISTRAL),
    "mistral-v11": ("Mistral-Small-3.2-24B-Instruct-2506", _MISTRAL),
    "mistral-v13": (
        "mistralai-Ministral-3-14B-Reasoning-2512",
        {**_MISTRAL, "reasoning": "parts"},
    ),
    "devstral": ("unsloth-mistral-Devstral-Small-2507", _MISTRAL),
    "qwen3-coder": ("Qwen3-Coder", {}),
    "qwen3.5": ("Qwen3.5-4B", {}),
    "glm4": ("GLM-4.6", {}),
    "glm4.7": ("GLM-4.7-Flash", {}),
    "deepseek-r1": ("vllm-deepseekr1", _DEEPSEEK),
    "deepseek-v3": ("vllm-deepseekv3", _DEEPSEEK),
    "deepseek-v3.1": ("deepseek-ai-DeepSeek-V3.1", _DEEPSEEK),
    "deepseek-v3.2": ("deepseek-ai-DeepSeek-V3.2", {**_DEEPSEEK, "thinking": True}),
    "deepseek-v4": ("deepseek-ai-DeepSeek-V4", {**_DEEPSEEK, "thinking": True}),
    "kimi-k2": ("moonshotai-Kimi-K2", {}),
    "kimi-k2-thinking": ("Kimi-K2-Thinking", {"names": False}),
    "harmony": ("openai-gpt-oss-120b", {"reasoning": "thinking"}),
    "minimax-m2": ("MiniMax-M2", {}),
    "minimax-m3": ("MiniMax-M3", {}),
    "lfm2": ("LFM2.5-8B-A1B", {"reasoning": "thinking"}),
    "nemotron-nano-v2": ("NVIDIA-Nemotron-Nano-v2", {}),
    "nemotron3": ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {}),
    "granite3": ("vllm-granite", {}),
    "granite4": ("ibm-granite-granite-4.0", {}),
    "granite4.1": ("ibm-granite-granite-4.1", {}),
    "gemma4": ("google-gemma-4-31B-it", {"bos_token": "<bos>"}),
    "qwq": ("Qwen-QwQ-32B", {"enable_thinking": True}),
    "mimo": ("MiMo-VL", {}),
    "step3.5": ("StepFun3.5-Flash", {}),
    "seed-oss": ("ByteDance-Seed-OSS", {}),
    "ling3": ("inclusionai-ling-3.0-flash", {}),
    "spark": ("Spark2.5", {}),
    "laguna": ("poolside-Laguna-XS-2.1", {"enable_thinking": True}),
    "xlam": ("vllm-xlam_qwen", {}),
    "xlam-llama": ("vllm-xlam_llama", _LLAMA),
    "toolace": ("vllm-toolace", _LLAMA),
    "internlm2": ("vllm-internlm2_tool", {"bos_token": "<s>"}),
    "functionary-v3.1": ("meetkai-functionary-medium-v3.1", _LLAMA),
    "hy3": ("tencent-Hy3", {"reasoning_effort": "high"}),
    "reka": ("Reka-Edge", {}),
    "phi4-mini": ("vllm-phi4_mini", {}),
    "command-r7b": (
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        {"bos_token": "<BOS_TOKEN>"},
    ),
}
"""By dialect: the template, and what it is given; `reasoning` is where it takes reasoning, `names` whether results come
with the names of their tools."""

# ---------------------------------------------------------------------- what may differ, and why


def _same_but_space(prompt):
    return re.sub(r"\s+", "", prompt)


def _same_but_quotes(prompt):
    return re.sub(r"""['"\\]|\bn(?="区)""", "", prompt)


def _same_but_case(prompt):
    return prompt.lower()


def _same_but_line_ends(prompt):
    return prompt.replace("\\n", "\n")


def _same_but_tools(prompt):
    return re.sub(
        r"\n\n## Tools\n.*without separators or spaces\n", "", prompt, flags=re.DOTALL
    )


def _same_but_order(prompt):
    return sorted(prompt)


def _same_but_thoughts(prompt):
    return re.sub(r"<think>\n\n</think>\n+", "", prompt)


def _same_but_code_points(prompt):
    return re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), prompt)


def _same_but_escapes(prompt):
    return html.unescape(prompt)


def _each(dialects, kinds):
    return {dialect: set(kinds) for dialect in dialects.split()}


_WITH_ORDERS = {"two tools", "calls before the last question", "nested arguments"}
_CALLS = {
    kind for kind, (messages, _) in KINDS.items() if "tool_calls" in str(messages)
}
_SEVERAL = {"several results", "text beside several calls"}
_ENDED = {"result, answer", "reasoning, answer"}
_TEXT_AND_CALLS = {
    "text beside a call",
    "text beside several calls",
    "reasoning, text, call",
}
_ESCAPED = "Chinese, quotes, line ends"

DIFFERENCES = {
    "a picture cannot be in a text: the prompt says so in its place": (
        None,
        {dialect: {"picture"} for dialect in FAMILIES},
    ),
    "the template refuses several calls: they are told one after the other": (
        None,
        _each("llama3.1 llama3.2 llama3.3 llama3-vllm llama3.2-vllm", _SEVERAL),
    ),
    "the template loses all calls but the first, which are told one after the other": (
        None,
        {"harmony": _SEVERAL},
    ),
    "the template writes text beside a call as reasoning, which models do not show": (
        None,
        {"harmony": {"text beside a call", "reasoning, text, call"}},
    ),
    "the template's types are broken by a line end, and it knows no type of an item": (
        None,
        {"harmony": _WITH_ORDERS},
    ),
    "the template's own dialect of Python: our strings have Python's quotes": (
        _same_but_quotes,
        {
            "llama3-pythonic": _CALLS - {"nested arguments", "no arguments", _ESCAPED},
            "llama4": _CALLS - {"no arguments", _ESCAPED},
            "toolace": _CALLS - {"nested arguments", "no arguments", _ESCAPED},
        },
    ),
    "a line end in a text breaks the template's own Python": (
        None,
        _each("llama3-pythonic llama4 lfm2 toolace", {_ESCAPED}),
    ),
    "the template lays calls out over lines; ours are as the model wrote them": (
        _same_but_space,
        {"granite3": _CALLS - _TEXT_AND_CALLS, "deepseek-v4": {"no arguments"}},
    ),
    "the template leaves out the text beside a call": (
        None,
        {"granite3": _TEXT_AND_CALLS},
    ),
    "the template leaves white space of its own layout in every prompt": (
        _same_but_space,
        {
            "deepseek-v3": set(KINDS)
            - {"picture", "late system", "two questions in a row"}
        },
    ),
    "the template leaves the tools out, so that the model could not know of them": (
        _same_but_tools,
        {
            "deepseek-v3.1": {kind for kind, (_, tools) in KINDS.items() if tools}
            - {"result, answer"}
        },
    ),
    "Python's words for JSON's: the readers of the family take JSON's": (
        _same_but_case,
        {
            "qwen3-coder": _WITH_ORDERS,
            "nemotron3": _WITH_ORDERS,
            "qwen3.5": {"nested arguments"},
            "step3.5": {"nested arguments"},
        },
    ),
    "Python's words and quotes for JSON's: the readers of the family take JSON's": (
        lambda prompt: _same_but_quotes(prompt).lower(),
        {"seed-oss": {"calls before the last question", "nested arguments"}},
    ),
    "the template has no line end between two arguments, or one too many without any": (
        _same_but_space,
        {
            "ling3": {
                *_SEVERAL,
                "two steps",
                "reasoning in two steps",
                "calls before the last question",
                "nested arguments",
                "no arguments",
            }
        },
    ),
    "the template writes Chinese of a call as escapes; ours is as the model wrote it": (
        _same_but_code_points,
        {"reka": {_ESCAPED}},
    ),
    "the template tells calls in another form than it asks for, or loses them": (
        None,
        {"phi4-mini": _CALLS},
    ),
    "the template escapes the quotes of its own JSON": (
        _same_but_escapes,
        {"functionary-v3.1": {kind for kind, (_, tools) in KINDS.items() if tools}},
    ),
    "a line end in a description breaks the template's own JSON": (
        _same_but_line_ends,
        _each(
            "mistral-nemo mistral-vllm mistral-vllm-parallel command-r7b", _WITH_ORDERS
        ),
    ),
    "the template sorts arguments; ours are in the order in which the model wrote them": (
        _same_but_order,
        {"gemma4": {"calls before the last question", "nested arguments"}},
    ),
    "the template tells the text beside a call after its result; ours where it was said": (
        None,
        {"gemma4": _TEXT_AND_CALLS},
    ),
    "an instruction that comes later stays where it was given": (
        None,
        _each(
            "mistral-nemo mistral-vllm mistral-vllm-parallel mistral-v11 mistral-v13 "
            "qwen3.5 deepseek-r1 deepseek-v3 deepseek-v3.1 deepseek-v3.2 deepseek-v4 "
            "harmony minimax-m2 minimax-m3 nemotron-nano-v2 internlm2 hy3 "
            "reka phi4-mini",
            {"late system"},
        ),
    ),
    "the template refuses two questions in a row, which become one": (
        None,
        _each(
            "mistral-nemo mistral-vllm mistral-vllm-parallel mistral-v11 mistral-v13",
            {"two questions in a row"},
        ),
    ),
    "the template opens an answer between two questions": (
        None,
        _each("deepseek-r1 deepseek-v3", {"two questions in a row"}),
    ),
    "after an answer of its own the model is asked for another one": (
        None,
        {
            "qwen3": {"result, answer"},
            "deepseek-v3.1": _ENDED,
            "deepseek-v3.2": _ENDED,
            "nemotron-nano-v2": _ENDED,
            "hy3": _ENDED,
            "reka": _ENDED,
            "kimi-k2-thinking": {"reasoning, answer"},
            "harmony": {"reasoning, answer"},
            "gemma4": {"reasoning, answer"},
        },
    ),
    "an empty thought stays once it was told, so that a cache of the prompt holds": (
        _same_but_thoughts,
        {
            "qwen3.5": {
                "several questions",
                "several questions, no tool",
                "result, answer, question",
                "reasoning before the last question",
            },
            "step3.5": {
                "several questions",
                "several questions, no tool",
                "result, answer, question",
                "reasoning before the last question",
                "late system",
            },
        },
    ),
    "an empty thought stays, and Python's words are JSON's": (
        lambda prompt: _same_but_thoughts(prompt).lower(),
        _each("qwen3.5 step3.5", {"calls before the last question"}),
    ),
    "the template leaves a line end of a thought that it left out": (
        _same_but_space,
        {"nemotron3": {"reasoning before the last question"}},
    ),
    "the template fails on a conversation without tools": (
        None,
        {"hermes-2-pro": {kind for kind, (_, tools) in KINDS.items() if not tools}},
    ),
    "the template has no type for an object, and takes a missing description for text": (
        None,
        {
            dialect: {*_WITH_ORDERS, "no arguments"}
            for dialect in ("hermes-2-pro", "hermes-vllm")
        },
    ),
    "the template's own system message is about one program that it works in": (
        None,
        {"devstral": {"no system", "no system, tool", "no system, result"}},
    ),
}
"""By reason: what makes both alike (None: nothing does), and in which kinds of conversation of which dialects."""


def difference_of(dialect, kind):
    """Return the reason and the means of a difference that is wanted; None where there is none."""
    for reason, (level, where) in DIFFERENCES.items():
        if kind in where.get(dialect, ()):
            return reason, level
    return None


def digest(text):
    """Return the digest of a prompt, or of a list of its characters."""
    return hashlib.sha256("".join(text).encode()).hexdigest()[:16]


def prompt_of(dialect, kind):
    """Return our prompt."""
    messages, tools = json.loads(json.dumps(KINDS[kind]))
    for message in messages:
        for call in message.get("tool_calls", ()):
            function = call["function"]
            function["arguments"] = json.dumps(
                function["arguments"], ensure_ascii=False
            )
    conversation = []
    for told, message in zip(messages, conversation_of(messages), strict=True):
        if "reasoning_content" in told:
            turn = replace(message.turn, reasoning=told["reasoning_content"])
            message = AssistantMessage(turn)
        conversation.append(message)
    described = [Described(*tool) for tool in tools]
    return hr.dialect(dialect).on(TODAY).encode_request(conversation, described)


# ---------------------------------------------------------------------- the templates themselves


class Refused(Exception):
    """The template has no form for a conversation, and says so."""


class _Generation(Extension):
    """The tag around what a model writes itself; it changes nothing of a prompt."""

    tags: ClassVar = {"generation"}

    def parse(self, parser):
        """Return what the tag encloses."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _refuse(message):
    raise Refused(message)


def _to_json(value, ensure_ascii=False, indent=None, separators=None):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators
    )


def render(template, kind, *, reasoning="reasoning_content", names=True, **given):
    """Return the prompt of a template, rendered as `transformers` renders it.

    Raises:
        Refused: The template has no form for the conversation.
    """
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters |= {"tojson": _to_json, "from_json": json.loads}
    now = datetime(TODAY.year, TODAY.month, TODAY.day, tzinfo=UTC)
    environment.globals |= {"raise_exception": _refuse, "strftime_now": now.strftime}
    messages, tools = json.loads(json.dumps(KINDS[kind]))
    for message in messages:
        if not names:
            message.pop("name", None)
        thoughts = message.pop("reasoning_content", None)
        if thoughts and reasoning == "parts":
            text = [{"type": "text", "text": message["content"]}]
            message["content"] = [
                {"type": "thinking", "thinking": thoughts},
                *(text if message["content"] else ()),
            ]
        elif thoughts:
            message[reasoning] = thoughts
    functions = [
        {"type": "function", "function": dict(zip(_FIELDS, tool, strict=True))}
        for tool in tools
    ]
    return environment.from_string(template).render(
        messages=messages,
        tools=functions or None,
        add_generation_prompt=True,
        **{"bos_token": "", "eos_token": "", **given},
    )


_FIELDS = ("name", "description", "parameters")


def _record(folder):
    """Write the digests of what the templates in a folder give; print what differs and is not named."""
    recorded = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    for dialect, (name, given) in FAMILIES.items():
        path = folder / f"{name}.jinja"
        if not path.exists():
            print(f"{name} is not in the folder: its digests stay as they were")
            continue
        recorded[dialect] = {
            kind: _record_kind(dialect, kind, path.read_text("utf-8"), given)
            for kind in KINDS
        }
    DIGESTS.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


def _record_kind(dialect, kind, template, given):
    try:
        theirs = render(template, kind, **given)
    except Exception as error:
        return f"refused: {type(error).__name__}"
    ours = prompt_of(dialect, kind)
    difference = difference_of(dialect, kind)
    level = difference[1] if difference else str
    if level is None:
        return "differs" if ours != theirs else "alike"
    if level(ours) != level(theirs):
        print(f"--- {dialect}: {kind}")
        pieces = [text.replace("\n", "⏎\n").splitlines() for text in (theirs, ours)]
        print(*difflib.unified_diff(*pieces, "theirs", "ours", n=1), sep="\n")
    elif difference and ours == theirs:
        print(f"--- {dialect}: {kind} does not differ")
    return digest(level(theirs))


if __name__ == "__main__":
    _record(Path(sys.argv[1]))
