"""How further families lay out a conversation: one row a family, beside its syntax in `syntaxes`.

The rows follow the templates that come with the models. A row that deviates says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from handrail.calls import ToolCall
from handrail.errors import Json
from handrail.ports import Described
from handrail_openmodels.prompts import hermes
from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    as_json,
    break_tokens,
    function_schema,
)
from handrail_openmodels.prompts.dialect import NAMES, PYTHON_NAMES, PromptDialect
from handrail_openmodels.prompts.syntaxes import SYNTAXES


def list_tools(opening: Opening) -> str:
    """Return the tools as JSON, one a line."""
    return "\n".join(as_json(function_schema(tool)) for tool in opening.tools)


# ---------------------------------------------------------------------- Qwen3-Coder and its kind

_CODER_TOOLS = """\
# Tools

You have access to the following tools:

<tools>
{tools}
</tools>

If you choose to call a tool ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
value_2
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: the tool calling block MUST begin with an opening <tool_call> tag \
and end with a closing </tool_call> tag.
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell \
the user about function calls
</IMPORTANT>"""
_CODER_SYSTEM = "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."


def _coder(opening: Opening) -> PromptHead:
    if not opening.tools:
        return PromptHead(
            "" if opening.system is None else opening.system.join(hermes.SYSTEM)
        )
    tools = "\n".join(_as_elements(tool) for tool in opening.tools)
    if opening.system is None:
        system = _CODER_SYSTEM
    else:
        system = opening.system
    return PromptHead(
        f"{system}\n\n{_CODER_TOOLS.replace('{tools}', tools)}".join(hermes.SYSTEM)
    )


def _as_elements(tool: Described) -> str:
    """Return a tool as elements: what is text of a schema by name, the rest as JSON."""
    parameters = dict(tool.parameters)
    properties = parameters.pop("properties", None) or {}
    parameters.pop("type", None)
    lines = [
        "<function>",
        f"<name>{tool.name}</name>",
        f"<description>{tool.description}</description>",
        "<parameters>",
    ]
    for name, schema in properties.items():
        lines += [
            "<parameter>",
            f"<name>{name}</name>",
            *_as_tags(schema),
            "</parameter>",
        ]
    return "\n".join([*lines, *_as_tags(parameters), "</parameters>", "</function>"])


def _as_tags(schema: Json) -> list[str]:
    if not isinstance(schema, Mapping):
        return []
    elements: list[str] = []
    for key, value in schema.items():
        if isinstance(value, str):
            text = value
        else:
            text = as_json(value)
        elements.append(f"{_tag(key)}{text}{_tag(f'/{key}')}")
    return elements


def _tag(name: str) -> str:
    """Return a tag. A word of a schema is anybody's, and `|im_end|` is a token only within its brackets."""
    return break_tokens(f"<{name}>", SYNTAXES["qwen3-coder"].tokens)


QWEN35_TOOLS = """\
# Tools

You have access to the following functions:

<tools>
{tools}
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell \
the user about function calls
</IMPORTANT>"""


def _qwen35(opening: Opening) -> PromptHead:
    if opening.tools:
        tools = QWEN35_TOOLS.replace("{tools}", list_tools(opening))
    else:
        tools = None
    texts = [text for text in (tools, opening.system) if text is not None]
    return PromptHead("\n\n".join(texts).join(hermes.SYSTEM) if texts else "")


# ---------------------------------------------------------------------- GLM

_GLM_TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, output the function name and arguments within the following XML format:
<tool_call>{function-name}
<arg_key>{arg-key-1}</arg_key>
<arg_value>{arg-value-1}</arg_value>
<arg_key>{arg-key-2}</arg_key>
<arg_value>{arg-value-2}</arg_value>
...
</tool_call>"""


def _glm(opening: Opening) -> PromptHead:
    texts: list[str] = []
    if opening.tools:
        texts.append(_GLM_TOOLS.replace("{tools}", list_tools(opening)))
    if opening.system is not None:
        texts.append(opening.system)
    return PromptHead("[gMASK]<sop>" + "".join(f"<|system|>\n{text}" for text in texts))


# ---------------------------------------------------------------------- Kimi


def _kimi_k2(opening: Opening) -> PromptHead:
    return _kimi(opening, "You are a helpful assistant")


def _kimi_k2_thinking(opening: Opening) -> PromptHead:
    return _kimi(opening, "You are Kimi, an AI assistant created by Moonshot AI.")


def _count_calls(calls: Iterable[ToolCall]) -> Mapping[str, str]:
    """Return ids as Kimi writes them, `functions.name:0`, counted through the conversation."""
    ids: dict[str, str] = {}
    for position, call in enumerate(calls):
        ids.setdefault(call.id, f"functions.{call.name}:{position}")
    return ids


def _kimi(opening: Opening, default: str) -> PromptHead:
    listed = as_json([function_schema(tool) for tool in opening.tools])
    if opening.tools:
        tools = f"<|im_system|>tool_declare<|im_middle|>{listed}<|im_end|>"
    else:
        tools = ""
    if opening.system is None:
        system = default
    else:
        system = opening.system
    return PromptHead(f"{tools}<|im_system|>system<|im_middle|>{system}<|im_end|>")


# ---------------------------------------------------------------------- harmony


def _harmony(opening: Opening) -> PromptHead:
    if opening.today:
        date = f"Current date: {opening.today:%Y-%m-%d}\n"
    else:
        date = ""
    if opening.tools:
        route = "\nCalls to these tools must go to the commentary channel: 'functions'."
    else:
        route = ""
    system = (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        f"Knowledge cutoff: 2024-06\n{date}\nReasoning: medium\n\n"
        f"# Valid channels: analysis, commentary, final. Channel must be included for every message.{route}<|end|>"
    )
    if opening.system is None:
        developer = ""
    else:
        developer = f"# Instructions\n\n{opening.system}\n\n"
    if opening.tools:
        types = "".join(_as_type(tool) for tool in opening.tools)
        developer += f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{types}}} // namespace functions"
    return PromptHead(
        system
        + (f"<|start|>developer<|message|>{developer}<|end|>" if developer else "")
    )


def _as_type(tool: Described) -> str:
    """Return a tool as a function's type in TypeScript."""
    properties = tool.parameters.get("properties") or {}
    about = "".join(f"// {line}\n" for line in tool.description.split("\n"))
    if properties:
        takes = f"_: {_as_typescript(tool.parameters)}"
    else:
        takes = ""
    return f"{about}type {tool.name} = ({takes}) => any;\n\n"


def _union_branches(schema: Mapping[str, Json]) -> Json:
    """Return the schemas of which a value meets one; None where the schema is no union."""
    branches = schema.get("anyOf", schema.get("oneOf"))
    kind = schema.get("type")
    if branches is None and isinstance(kind, list):
        return [{**schema, "type": each} for each in kind]
    return branches


def _as_typescript(schema: Json) -> str:
    """Return a schema as a type in TypeScript; what has no type there is `any`."""
    if not isinstance(schema, Mapping):
        return "any"
    if options := schema.get("enum"):
        return " | ".join(map(as_json, options))
    kind = schema.get("type")
    branches = _union_branches(schema)
    if branches is not None:
        return " | ".join(map(_as_typescript, branches))
    if kind == "array":
        inner = _as_typescript(schema.get("items"))
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind == "object" and schema.get("properties"):
        return _as_object_type(schema)
    if isinstance(kind, str):
        return _TYPES.get(kind, "any")
    return "any"


def _as_object_type(schema: Mapping[str, Json]) -> str:
    required = schema.get("required") or ()
    members = [
        _member(name, each, name in required)
        for name, each in schema["properties"].items()
    ]
    return "{\n" + "".join(members) + "}"


_TYPES: Mapping[str, str] = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
}


def _member(name: str, schema: Json, required: bool) -> str:
    if isinstance(schema, Mapping):
        about = schema.get("description")
    else:
        about = None
    default = ""
    if isinstance(schema, Mapping) and "default" in schema:
        default = f" // default: {as_json(schema['default'])}"
    if about:
        comment = "".join(f"// {line}\n" for line in str(about).split("\n"))
    else:
        comment = ""
    return f"{comment}{name}{'' if required else '?'}: {_as_typescript(schema)},{default}\n"


# ---------------------------------------------------------------------- MiniMax

_MINIMAX_TOOLS = """

# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
{tools}
</tools>

When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>"""
_MINIMAX_SYSTEM = "You are a helpful assistant."


def _minimax(opening: Opening) -> PromptHead:
    tools = "\n".join(
        f"<tool>{as_json(function_schema(tool)['function'])}</tool>"
        for tool in opening.tools
    )
    if opening.system is None:
        system = _MINIMAX_SYSTEM
    else:
        system = opening.system
    if opening.tools:
        request = _MINIMAX_TOOLS.replace("{tools}", tools)
    else:
        request = ""
    return PromptHead(f"]~!b[]~b]system\n{system}{request}[e~[\n")


# ---------------------------------------------------------------------- Granite


_GRANITE_SYSTEM = (
    "You are a helpful AI assistant with access to the following tools. When a tool is required to answer the user "
    "query, respond with <|tool_call|> followed by a JSON list of tools used."
)


def _granite(opening: Opening) -> PromptHead:
    listed = "\n\n".join(
        as_json(function_schema(tool), indent=4) for tool in opening.tools
    )
    if opening.tools:
        tools = f"<|start_of_role|>available_tools<|end_of_role|>\n{listed}<|end_of_text|>\n"
    else:
        tools = ""
    if opening.system is None:
        return PromptHead(
            (_GRANITE_SYSTEM.join(granite_turn("system")) if tools else "") + tools
        )
    return PromptHead(tools + opening.system.join(granite_turn("system")))


def granite_turn(role: str) -> tuple[str, str]:
    """Return the marks around a turn of Granite."""
    return f"<|start_of_role|>{role}<|end_of_role|>", "<|end_of_text|>\n"


# ---------------------------------------------------------------------- LFM2


def _lfm2(opening: Opening) -> PromptHead:
    if opening.tools:
        listed = f"List of tools: {as_json([function_schema(tool) for tool in opening.tools])}"
    else:
        listed = None
    texts = [text for text in (opening.system, listed) if text is not None]
    return PromptHead("\n".join(texts).join(hermes.SYSTEM) if texts else "")


# ---------------------------------------------------------------------- Nemotron Nano v2

_NEMOTRON_TOOLS = """\
You can use the following tools to assist the user if required:
<AVAILABLE_TOOLS>{tools}</AVAILABLE_TOOLS>

If you decide to call any tool(s), use the following format:
<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}, {{"name": "tool_name2", "arguments": "tool_args2"}}]\
</TOOLCALL>

The user will execute tool-calls and return responses from tool(s) in this format:
<TOOL_RESPONSE>[{{"tool_response1"}}, {{"tool_response2"}}]</TOOL_RESPONSE>

Based on the tool responses, you can call additional tools if needed, correct tool calls if any errors are found, or \
just respond to the user."""


def _nemotron(opening: Opening) -> PromptHead:
    listed = as_json([function_schema(tool)["function"] for tool in opening.tools])
    if opening.tools:
        tools = _NEMOTRON_TOOLS.replace("{tools}", listed)
    else:
        tools = None
    system = "\n\n".join(text for text in (opening.system, tools) if text is not None)
    return PromptHead(f"<SPECIAL_10>System\n{system}\n\n")


# ---------------------------------------------------------------------- Gemma 4


def _gemma4(opening: Opening) -> PromptHead:
    tools = "".join(
        f"<|tool>declaration:{tool.name}{_declaration(tool)}<tool|>"
        for tool in opening.tools
    )
    if opening.system is None and not tools:
        return PromptHead()
    return PromptHead(f"<|turn>system\n{opening.system or ''}{tools}<turn|>\n")


def _declaration(tool: Described) -> str:
    return f"{{description:{_literal(tool.description)},parameters:{_literal_schema(tool.parameters)}}}"


_DECLARED = ("description", "enum", "items", "properties", "required", "type")
"""The keywords of a schema that are written, in this order; the template leaves out the rest."""


def _literal_schema(schema: Json) -> str:
    if isinstance(schema, Mapping):
        fields = schema
    else:
        fields = {}
    return (
        "{"
        + ",".join(
            f"{key}:{_literal_field(key, fields[key])}"
            for key in _DECLARED
            if key in fields and (key != "properties" or fields[key])
        )
        + "}"
    )


def _literal_field(key: str, value: Json) -> str:
    if key == "properties" and isinstance(value, Mapping):
        return (
            "{"
            + ",".join(
                f"{name}:{_literal_schema(value[name])}" for name in sorted(value)
            )
            + "}"
        )
    if key == "items":
        return _literal_schema(value)
    return _literal(
        value.upper() if key == "type" and isinstance(value, str) else value
    )


def _literal(value: Json) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    return as_json(value)


# ---------------------------------------------------------------------- the families

_CHATML = hermes.QWEN3
_KIMI: Final = Template(
    _kimi_k2,
    ("<|im_user|>user<|im_middle|>", "<|im_end|>"),
    ("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
    # The template has a backslash and an `n` there, no line end.
    ("<|im_system|>tool<|im_middle|>## Return of {id}\\n", "<|im_end|>"),
    system=("<|im_system|>system<|im_middle|>", "<|im_end|>"),
    thinks="never",
)
_TEMPLATES: Final[Mapping[str, Template]] = {
    "qwen3-coder": replace(
        _CHATML,
        head=_coder,
        results=("<|im_start|>user\n", "\n<|im_end|>\n"),
        before_calls="\n\n",
        thinks="never",
    ),
    "qwen3.5": replace(
        _CHATML,
        head=_qwen35,
        thoughtless="<think>\n\n</think>\n\n",
        opens="<think>\n",
        before_calls="\n\n",
    ),
    "glm4": Template(
        _glm,
        ("<|user|>\n", ""),
        ("<|assistant|>", ""),
        ("\n<tool_response>\n", "\n</tool_response>"),
        results=("<|observation|>", ""),
        system=("<|system|>\n", ""),
        thoughtless="\n<think></think>\n",
        reasoning_lead="\n",
        before_calls="\n",
    ),
    "kimi-k2": _KIMI,
    "kimi-k2-thinking": replace(
        _KIMI,
        head=_kimi_k2_thinking,
        thinks="recent",
        thoughtless="<think></think>",
        result=("<|im_system|>tool<|im_middle|>## Return of {id}\n", "<|im_end|>"),
        ids=_count_calls,
    ),
    # Several calls are written one by one: the template writes the first one only, and the results of all.
    "harmony": Template(
        _harmony,
        ("<|start|>user<|message|>", "<|end|>"),
        ("<|start|>assistant", "<|end|>"),
        (
            "<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>",
            "<|end|>",
        ),
        system=("<|start|>developer<|message|># Instructions\n\n", "\n\n<|end|>"),
        format_result=as_json,
        single=True,
        ends_calls="<|call|>",
        stops=("<|return|>", "<|call|>"),
    ),
    "minimax-m2": Template(
        _minimax,
        ("]~b]user\n", "[e~[\n"),
        ("]~b]ai\n", "[e~[\n"),
        ("<response>", "</response>"),
        results=("]~b]tool\n", "[e~[\n"),
        between="\n",
        opens="<think>\n",
        calls_lead="\n",
        before_calls="\n",
        # No tokens yet, but the `[e~[` after them would give them its first character, and no longer end the turn.
        tokens=("]~!b", "[e~"),
    ),
    "granite3": Template(
        _granite,
        granite_turn("user"),
        granite_turn("assistant"),
        granite_turn("tool_response"),
        system=granite_turn("system"),
        thinks="never",
    ),
    "lfm2": replace(
        _CHATML,
        head=_lfm2,
        result=("<|im_start|>tool\n", "<|im_end|>\n"),
        results=("", ""),
        between="",
        before_calls="",
    ),
    "nemotron-nano-v2": Template(
        _nemotron,
        ("<SPECIAL_11>User\n", "\n"),
        ("<SPECIAL_11>Assistant\n", "\n<SPECIAL_12>\n"),
        results=("<SPECIAL_11>User\n<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
        between=", ",
        opens="<think>\n",
        before_calls="\n",
        thinks="never",
    ),
    # Calls, results and the answer to them are one turn.
    "gemma4": Template(
        _gemma4,
        ("<|turn>user\n", "<turn|>\n"),
        ("<|turn>model\n", "<turn|>\n"),
        ('<|tool_response>response:{name}{value:<|"|>', '<|"|>}<tool_response|>'),
        system=("<|turn>system\n", "<turn|>\n"),
        after_results="",
        continues_bare=True,
        ends_calls="",
        bos="<bos>",
        opens="<|channel>thought\n<channel|>",
        stops=("<turn|>", "<|tool_response>"),
    ),
}
_ALIASES: Final = {"gpt-oss": "harmony"}
_SYNTAXES: Final = {"kimi-k2-thinking": "kimi-k2"}

DIALECTS: Final[Mapping[str, PromptDialect]] = {
    name: PromptDialect(
        name,
        SYNTAXES[_SYNTAXES.get(name, name)],
        _TEMPLATES[_ALIASES.get(name, name)],
        names=PYTHON_NAMES if name in ("lfm2", "gemma4") else NAMES,
    )
    for name in (*_TEMPLATES, *_ALIASES)
}
