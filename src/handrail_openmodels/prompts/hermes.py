"""ChatML with tools in XML-like tags: Hermes, Qwen2.5, Qwen3.

    <|im_start|>system ... <tools>{...}</tools> ...<|im_end|>
    <|im_start|>user ...<|im_end|>
    <|im_start|>assistant <tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>
    <|im_start|>user <tool_response>...</tool_response><|im_end|>

They differ in where results go (Qwen: in a user's turn) and in what the system message says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from handrail.errors import Json
from handrail.ports import Described
from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    Wrap,
    as_json,
    function_schema,
)
from handrail_openmodels.prompts.dialect import PromptDialect
from handrail_openmodels.prompts.syntaxes import SYNTAXES

SYSTEM: Final[Wrap] = ("<|im_start|>system\n", "<|im_end|>\n")
USER: Final[Wrap] = ("<|im_start|>user\n", "<|im_end|>\n")
ASSISTANT: Final[Wrap] = ("<|im_start|>assistant\n", "<|im_end|>\n")
RESULT: Final[Wrap] = ("<tool_response>\n", "\n</tool_response>")

# ---------------------------------------------------------------------- Qwen

_QWEN_TOOLS = (
    "# Tools\n\n"
    "You may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n"
    "<tools>\n"
    "{tools}\n"
    "</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
    "XML tags:\n"
    "<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)
_QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


def _qwen2(opening: Opening) -> PromptHead:
    return _qwen(opening, _QWEN_SYSTEM)


def _qwen3(opening: Opening) -> PromptHead:
    return _qwen(opening, None)


def _qwen(opening: Opening, default: str | None) -> PromptHead:
    if opening.system is None:
        system = default
    else:
        system = opening.system
    parts = [system, list_tools(opening) if opening.tools else None]
    texts = [part for part in parts if part is not None]
    return PromptHead("\n\n".join(texts).join(SYSTEM) if texts else "")


def list_tools(opening: Opening) -> str:
    """Return the tools, one a line, with how to call them."""
    listed = "\n".join(as_json(function_schema(tool)) for tool in opening.tools)
    return _QWEN_TOOLS.replace("{tools}", listed)


QWEN3: Final = Template(
    _qwen3,
    USER,
    ASSISTANT,
    RESULT,
    results=USER,
    between="\n",
    system=SYSTEM,
    before_calls="\n",
)

# ---------------------------------------------------------------------- Hermes

_HERMES_TOOLS = (
    "You are a function calling AI model. You are provided with function signatures within <tools></tools> XML tags. "
    "You may call one or more functions to assist with the user query. Don't make assumptions about what values to "
    "plug into functions. Here are the available tools: <tools> {tools} </tools>Use the following pydantic model json "
    'schema for each tool call you will make: {"properties": {"name": {"title": "Name", "type": "string"}, '
    '"arguments": {"title": "Arguments", "type": "object"}}, "required": ["name", "arguments"], '
    '"title": "FunctionCall", "type": "object"}}\n'
    "For each function call return a json object with function name and arguments within <tool_call></tool_call> "
    "XML tags as follows:\n"
    "<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-dict>}\n'
    "</tool_call>"
)
_PYTHON_TYPES: Mapping[str, str] = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}


def _hermes(opening: Opening) -> PromptHead:
    return PromptHead(
        (_hermes_tools(opening) + "\n" if opening.tools else "") + _system(opening)
    )


def _vllm(opening: Opening) -> PromptHead:
    """Begin as the template in vLLM does: it always mentions tools, and leaves out a line end."""
    return PromptHead(_hermes_tools(opening) + _system(opening))


def _hermes_tools(opening: Opening) -> str:
    tools = "\n".join(_signature(tool) for tool in opening.tools)
    return _HERMES_TOOLS.replace("{tools}", tools).join(SYSTEM).removesuffix("\n")


def _system(opening: Opening) -> str:
    if opening.system is None:
        return ""
    return opening.system.join(SYSTEM)


def _signature(tool: Described) -> str:
    """Return a tool as Hermes was taught it: JSON by hand, whose description holds a Python signature."""
    properties = tool.parameters.get("properties") or {}
    types = {name: _python_type(schema) for name, schema in properties.items()}
    arguments = ", ".join(f"{name}: {type}" for name, type in types.items())
    lines = "".join(
        f"        {name}({type}): {_about(properties[name])}"
        for name, type in types.items()
    )
    about = f"{tool.name}({arguments}) - {tool.description}" + (
        f"\n\n    Args:\n{lines}" if types else ""
    )
    return (
        f'{{"type": "function", "function": {{"name": "{tool.name}", "description": "{about}", '
        f'"parameters": {as_json(tool.parameters)}}}'
    )


def _python_type(schema: Json) -> str:
    if isinstance(schema, Mapping):
        kind = schema.get("type")
    else:
        kind = None
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"list[{_python_type(schema['items'])}]"
    if isinstance(kind, list):
        return f"Union[{','.join(_PYTHON_TYPES.get(each, 'Any') for each in kind)}]"
    if isinstance(kind, str):
        return _PYTHON_TYPES.get(kind, "Any")
    return "Any"


def _about(schema: Json) -> str:
    if isinstance(schema, Mapping):
        return str(schema.get("description") or "").strip()
    return ""


HERMES: Final = Template(
    _hermes,
    USER,
    ASSISTANT,
    RESULT,
    results=("<|im_start|>tool\n", "\n<|im_end|>"),
    results_last="<|im_end|>",
    between="\n",
    system=SYSTEM,
    bos="<|begin_of_text|>",
    thinks="never",
    calls_alone=True,
)

# ---------------------------------------------------------------------- the dialects


_TEMPLATES: Final = {
    "hermes": QWEN3,
    "hermes-2-pro": HERMES,
    "hermes-vllm": replace(HERMES, head=_vllm),
    "qwen2.5": replace(QWEN3, head=_qwen2, thinks="never"),
    "qwen3": QWEN3,
}
DIALECTS: Final[Mapping[str, PromptDialect]] = {
    name: PromptDialect(name, SYNTAXES["hermes"], template)
    for name, template in _TEMPLATES.items()
}
"""`hermes` is the form without the claims of one model in it, which Qwen3 uses; the others are what their names say."""
