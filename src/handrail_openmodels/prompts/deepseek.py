"""How the models of DeepSeek lay out a conversation: R1 and V3, V3.1, and V3.2 and V4 with their own markup.

V3.2 and V4 are written with thinking on, as the prompts that their own programs build. The rows follow the templates
that come with the models; a row that deviates says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    as_json,
    function_schema,
)
from handrail_openmodels.prompts.dialect import PromptDialect
from handrail_openmodels.prompts.syntaxes import SYNTAXES

# ---------------------------------------------------------------------- R1 and V3

_R1_TOOLS = """\
You are a helpful assistant with tool calling capabilities. When a tool call is needed, you MUST use the following \
format to issue the call:
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>FUNCTION_NAME
```json
{"param1": "value1", "param2": "value2"}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Make sure the JSON is valid.## Tools

### Function

You have the following functions available:

"""
_V3_TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.
{tools}
</tools>

For function call returns, you should first print <｜tool▁calls▁begin｜>

For each function call, you should return object like:

<｜tool▁call▁begin｜>function<｜tool▁sep｜><function_name>
```json
<function_arguments_in_json_format>
```<｜tool▁call▁end｜>

At the end of function call returns, you should print <｜tool▁calls▁end｜><｜end▁of▁sentence｜>"""


def _r1(opening: Opening) -> PromptHead:
    text = opening.system or ""
    if opening.tools:
        listed = "".join(
            f"\n```json\n{as_json(function_schema(tool))}\n```\n"
            for tool in opening.tools
        )
        text += f"\n\n{_R1_TOOLS}{listed}"
    return PromptHead(text)


def _v3(opening: Opening) -> PromptHead:
    """Begin as vLLM's template for V3 does, without the white space that its own layout leaves in the prompt."""
    text = opening.system or ""
    if opening.tools:
        listed = "\n".join(as_json(function_schema(tool)) for tool in opening.tools)
        text += "\n\n" + _V3_TOOLS.replace("{tools}", listed)
    return PromptHead(text)


# ---------------------------------------------------------------------- V3.1

_V31_TOOLS = """

## Tools
You have access to the following tools:
{tools}

IMPORTANT: ALWAYS adhere to this exact format for tool use:
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>\
{{additional_tool_calls}}<｜tool▁calls▁end｜>

Where:

- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces
"""


def _v31(opening: Opening) -> PromptHead:
    """Begin with the tools as DeepSeek's model card describes them: the model's own template leaves them out."""
    tools = "\n".join(
        f"\n### {tool.name}\nDescription: {tool.description}\n\nParameters: {as_json(tool.parameters)}"
        for tool in opening.tools
    )
    return PromptHead(
        (opening.system or "") + (_V31_TOOLS.replace("{tools}", tools) if tools else "")
    )


# ---------------------------------------------------------------------- V3.2 and V4

_V32_TOOLS = """\
## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the \
user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should \
use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. \
Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
{tools}
</functions>
"""
_V4_TOOLS = """\
## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> \
BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{tools}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


def _v32(opening: Opening) -> PromptHead:
    return _with_functions(opening, _V32_TOOLS)


def _v4(opening: Opening) -> PromptHead:
    return _with_functions(opening, _V4_TOOLS)


def _with_functions(opening: Opening, described: str) -> PromptHead:
    texts = [opening.system] if opening.system else []
    if opening.tools:
        listed = "\n".join(
            as_json(function_schema(tool)["function"]) for tool in opening.tools
        )
        texts.append(described.replace("{tools}", listed))
    return PromptHead("\n\n".join(texts))


# ---------------------------------------------------------------------- the models

_R1: Final = Template(
    _r1,
    ("<｜User｜>", ""),
    ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    results=("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    between="\n",
    bos="<｜begin▁of▁sentence｜>",
    thinks="never",
    after_results="",
    continues_bare=True,
)
_V32: Final = replace(
    _R1,
    head=_v32,
    result=("\n<result>", "</result>"),
    results=("\n\n<function_results>", "\n</function_results>"),
    between="",
    thinks="recent",
    opens="<think>",
    thoughtless="</think>",
    thoughtless_now="<think></think>",
    after_results="\n\n",
    continues_bare=False,
    before_calls="\n\n",
    calls_lead="\n\n",
    tokens=("<function_results>", "</function_results>", "<result>", "</result>"),
)
_TEMPLATES: Final[Mapping[str, Template]] = {
    "deepseek-r1": _R1,
    "deepseek-v3": replace(_R1, head=_v3),
    "deepseek-v3.1": replace(
        _R1,
        head=_v31,
        results=("", ""),
        between="",
        thoughtless="<think></think>",
        opens="<think></think>",
    ),
    "deepseek-v3.2": _V32,
    # What a person says and what tools answer are turns of one kind, and become one.
    "deepseek-v4": replace(
        _V32,
        head=_v4,
        merges=True,
        result=("<tool_result>", "</tool_result>"),
        results=("<｜User｜>", ""),
        between="\n\n",
        thinks="with tools",
        after_results=None,
        user_after_results="\n\n",
        tokens=("<tool_result>", "</tool_result>"),
    ),
}

DIALECTS: Final[Mapping[str, PromptDialect]] = {
    name: PromptDialect(name, SYNTAXES[name], template)
    for name, template in _TEMPLATES.items()
}
