"""How the families of 2026 lay out a conversation: one row a family, as in `more_families`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from handrail.errors import Json
from handrail.ports import Described
from handrail_openmodels.prompts import hermes, more_families
from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    as_json,
    break_tokens,
    function_schema,
)
from handrail_openmodels.prompts.dialect import PromptDialect
from handrail_openmodels.prompts.syntaxes import SYNTAXES

# ---------------------------------------------------------------------- GLM 4.7

_GLM_TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, output the function name and arguments within the following XML format:
<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key>\
<arg_value>{arg-value-2}</arg_value>...</tool_call>"""


def _glm47(opening: Opening) -> PromptHead:
    text = "[gMASK]<sop>"
    if opening.tools:
        listed = more_families.list_tools(opening)
        text += "<|system|>\n" + _GLM_TOOLS.replace("{tools}", listed)
    if opening.system is not None:
        text += f"<|system|>{opening.system}"
    return PromptHead(text)


# ---------------------------------------------------------------------- Granite 4

_GRANITE_TOOLS = """\
You are a helpful assistant with access to the following tools. You may call one or more tools to assist with the user \
query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each tool call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>. If a tool does not exist in the provided list of tools, notify the user that you do not have the ability \
to fulfill the request."""
_GRANITE_SYSTEM = "You are a helpful assistant. Please ensure responses are professional, accurate, and safe."


def _granite4(opening: Opening) -> PromptHead:
    return _granite(opening, _GRANITE_SYSTEM)


def _granite41(opening: Opening) -> PromptHead:
    return _granite(opening, "")


def _granite(opening: Opening, default: str) -> PromptHead:
    texts = [opening.system] if opening.system is not None else []
    if opening.tools:
        listed = more_families.list_tools(opening)
        texts.append(_GRANITE_TOOLS.replace("{tools}", listed))
    system = "\n\n".join(texts) or default
    return PromptHead(
        system.join(more_families.granite_turn("system")) if system else ""
    )


# ---------------------------------------------------------------------- Nemotron 3


def _nemotron3(opening: Opening) -> PromptHead:
    texts = [opening.system] if opening.system else []
    if opening.tools:
        tools = "\n".join(_as_elements(tool) for tool in opening.tools)
        texts.append(more_families.QWEN35_TOOLS.replace("{tools}", tools))
    return PromptHead("\n\n".join(texts).join(hermes.SYSTEM))


_NEMOTRON_FIRST = ("type", "description", "enum")


def _as_elements(tool: Described) -> str:
    lines = [
        "<function>",
        f"<name>{tool.name}</name>",
        f"<description>{tool.description.strip()}</description>",
        "<parameters>",
    ]
    for name, schema in (tool.parameters.get("properties") or {}).items():
        lines += [
            "<parameter>",
            f"<name>{name}</name>",
            *_as_tags(schema),
            "</parameter>",
        ]
    others = {
        key: value
        for key, value in tool.parameters.items()
        if key not in ("type", "properties", "required")
    }
    lines += _as_tags(others)
    if "required" in tool.parameters:
        lines += _as_tags({"required": tool.parameters["required"]})
    return "\n".join([*lines, "</parameters>", "</function>"])


def _as_tags(schema: Json) -> list[str]:
    """Return a schema as tags: type, description and enum first, as the family's own template has them."""
    if not isinstance(schema, Mapping):
        return []
    first = [key for key in _NEMOTRON_FIRST if key in schema]
    rest = [key for key in schema if key not in _NEMOTRON_FIRST]
    return [_as_tag(key, schema[key]) for key in (*first, *rest)]


def _as_tag(key: str, value: Json) -> str:
    text = value.strip() if key == "description" and isinstance(value, str) else value
    shown = text if isinstance(text, str) else as_json(text)
    tokens = SYNTAXES["nemotron3"].tokens
    return (
        f"{break_tokens(f'<{key}>', tokens)}{shown}{break_tokens(f'</{key}>', tokens)}"
    )


# ---------------------------------------------------------------------- MiniMax M3

_M3_HEAD = """\
]~!b[]~b]system
Your model version is MiniMax-M3, developed by MiniMax. Knowledge cutoff: January 2026. Founded in early 2022, MiniMax \
is a global AI foundation model company committed to advancing the frontiers of AI towards AGI.

<thinking_instructions>
You have a thinking capability that allows you to reason step by step before responding. When thinking is enabled, \
wrap your reasoning in <mm:think></mm:think> tags before your response. When thinking is disabled, begin your response \
directly after the </mm:think> prefix. When thinking is adaptive, decide on your own whether to think for the current \
turn.
Current thinking mode: adaptive. You are encouraged to think for complex decision-making, multi-step reasoning, or \
when analyzing function/tool results.
</thinking_instructions>[e~[
]~b]developer
"""
_M3_TOOLS = """

# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
{tools}
</tools>

To call tools, wrap all invocations in a single ]<]minimax[>[<tool_call>]<]minimax[>[</tool_call> block. Parameter \
values containing nested objects or arrays are recursively expanded into XML elements. Example:

]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="tool-name-1">]<]minimax[>[<param-1>value-1]<]minimax[>[</param-1>]<]minimax[>[<param-2>\
]<]minimax[>[<item>]<]minimax[>[<key-a>val-a]<]minimax[>[</key-a>]<]minimax[>[<key-b>val-b]<]minimax[>[</key-b>\
]<]minimax[>[</item>]<]minimax[>[</param-2>]<]minimax[>[</invoke>
]<]minimax[>[<invoke name="tool-name-2">]<]minimax[>[<param-1>value-1]<]minimax[>[</param-1>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>"""


def _minimax_m3(opening: Opening) -> PromptHead:
    text = _M3_HEAD + (opening.system or "You are a helpful assistant.")
    if opening.tools:
        listed = "\n".join(
            f"<tool>{as_json(function_schema(tool)['function'])}</tool>"
            for tool in opening.tools
        )
        text += _M3_TOOLS.replace("{tools}", listed)
    return PromptHead(f"{text}[e~[\n")


# ---------------------------------------------------------------------- the families

_TEMPLATES: Final[Mapping[str, Template]] = {
    "glm4.7": Template(
        _glm47,
        ("<|user|>", ""),
        ("<|assistant|>", ""),
        ("<tool_response>", "</tool_response>"),
        results=("<|observation|>", ""),
        system=("<|system|>", ""),
        thoughtless="</think>",
        opens="<think>",
    ),
    "granite4": Template(
        _granite4,
        more_families.granite_turn("user"),
        more_families.granite_turn("assistant"),
        ("\n<tool_response>\n", "\n</tool_response>"),
        results=more_families.granite_turn("user"),
        system=more_families.granite_turn("system"),
        before_calls="\n",
        thinks="never",
    ),
    "nemotron3": Template(
        _nemotron3,
        hermes.USER,
        hermes.ASSISTANT,
        ("<tool_response>\n", "\n</tool_response>\n"),
        results=hermes.USER,
        system=hermes.SYSTEM,
        thoughtless="<think></think>",
        thoughtless_calls="\n",
        opens="<think>\n",
        before_calls="\n",
        ends_calls="\n<|im_end|>\n",
    ),
    "minimax-m3": Template(
        _minimax_m3,
        ("]~b]user\n", "[e~[\n"),
        ("]~b]ai\n", "[e~[\n"),
        ("\n<response>", "</response>"),
        results=("]~b]tool", "[e~[\n"),
        thoughtless="</mm:think>",
        thinks="always",
        # The mark after a text would give these their last character.
        tokens=("]~!b", "]~b", "[e~", "]<]minimax[>"),
    ),
}
_NEW = {
    "granite4.1": ("granite4", replace(_TEMPLATES["granite4"], head=_granite41)),
}

DIALECTS: Final[Mapping[str, PromptDialect]] = {
    **{
        name: PromptDialect(name, SYNTAXES[name], template)
        for name, template in _TEMPLATES.items()
    },
    **{
        name: PromptDialect(name, SYNTAXES[syntax], template)
        for name, (syntax, template) in _NEW.items()
    },
}
