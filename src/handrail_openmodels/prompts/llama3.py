"""Llama 3.1 to 3.3 with tools as JSON in the first user message, and the pythonic forms of 3.2 and 4.

    <|start_header_id|>user<|end_header_id|>

    Given the following functions, ... {tools} What is the weather in Paris?<|eot_id|>
    <|start_header_id|>assistant<|end_header_id|>

    {"name": "get_weather", "parameters": {"city": "Paris"}}<|eot_id|>
    <|start_header_id|>ipython<|end_header_id|>

    "21 °C"<|eot_id|>

The JSON form has one call an answer, and its own template refuses several. They are written here as the model would
have made them one by one: a call, its result, the next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final

from msgspec.structs import replace

from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    Wrap,
    as_json,
    function_schema,
)
from handrail_openmodels.prompts.dialect import PYTHON_NAMES, PromptDialect
from handrail_openmodels.prompts.syntaxes import SYNTAXES

_KNOWLEDGE_END = "December 2023"
_UNDATED = date(2024, 7, 26)
"""What Meta's template uses as today's date when it gets none."""


def _turn(role: str) -> Wrap:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"


def _system(opening: Opening, text: str) -> str:
    """Return the system turn, with the lines that begin it for every Llama 3."""
    if opening.tools:
        environment = "Environment: ipython\n"
    else:
        environment = ""
    # Not by `strftime`, whose months depend on the machine's language.
    day = opening.today or _UNDATED
    today = f"{day.day:02} {_MONTHS[day.month - 1]} {day.year}"
    dates = f"Cutting Knowledge Date: {_KNOWLEDGE_END}\nToday Date: {today}\n\n"
    return (environment + dates + text).join(_turn("system"))


_MONTHS = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)

# ---------------------------------------------------------------------- calls as JSON

_REQUEST = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    "answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
)
_CAPABLE = (
    "You are a helpful assistant with tool calling capabilities. Only reply with a tool call if the function exists in "
    "the library provided by the user. If it doesn't exist, just reply directly in natural language. When you receive "
    "a tool call response, use the output to format an answer to the original user question."
)


def _list_tools(opening: Opening) -> str:
    return "".join(
        as_json(function_schema(tool), indent=4) + "\n\n" for tool in opening.tools
    )


def _meta(opening: Opening) -> PromptHead:
    if opening.tools:
        request = f"{_REQUEST}Do not use variables.\n\n{_list_tools(opening)}"
    else:
        request = ""
    return PromptHead(_system(opening, opening.system or ""), in_first=request)


def _vllm(opening: Opening) -> PromptHead:
    if opening.tools:
        request = f"{_REQUEST} Do not use variables.\n\n{_list_tools(opening)}"
    else:
        request = ""
    return PromptHead(_system(opening, _system_text(opening)), in_first=request)


def _system_text(opening: Opening) -> str:
    if opening.system is None:
        return _CAPABLE if opening.tools else ""
    return opening.system


def _as_output(text: str) -> str:
    return as_json({"output": text})


META: Final = Template(
    _meta,
    _turn("user"),
    _turn("assistant"),
    _turn("ipython"),
    system=_turn("system"),
    format_result=as_json,
    bos="<|begin_of_text|>",
    single=True,
    calls_alone=True,
)

_REQUEST_AT_FIRST = (
    "You have access to the following functions. To call a function, please respond with JSON for a function call. "
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
    "Do not use variables.\n\n"
)


def _vllm_small(opening: Opening) -> PromptHead:
    return _head_with_tools(opening, _REQUEST_AT_FIRST)


def _head_with_tools(opening: Opening, request: str) -> PromptHead:
    """Return a system turn that asks for calls, with the tools, where there are any."""
    tools = ""
    if opening.tools:
        tools = request + _list_tools(opening)
    return PromptHead(_system(opening, tools + _system_text(opening)))


# ---------------------------------------------------------------------- calls as Python

_REQUEST_IN_PYTHON = (
    "You have access to the following functions. To call functions, please respond with a python list of the calls. "
    "Respond in the format [func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)] "
    "Do not use variables.\n\n"
)


_SYSTEM_IN_PYTHON = (
    "You are a helpful assistant with tool calling capabilities. Only reply with a tool call if the function exists in "
    "the library provided by the user. If it doesn't exist, just reply directly in natural language. When you receive "
    "a tool call response, use the output to format an answer to the original user question."
)


def _pythonic(opening: Opening) -> PromptHead:
    if opening.system is None:
        opening = replace(opening, system=_SYSTEM_IN_PYTHON)
    return _head_with_tools(opening, _REQUEST_IN_PYTHON)


def _turn4(role: str) -> Wrap:
    return f"<|header_start|>{role}<|header_end|>\n\n", "<|eot|>"


_REQUEST4 = "Here is a list of functions in JSON format that you can invoke{how}\n"
_HOW4 = (
    ". Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]"
)
_SYSTEM4 = """\
You are a helpful assistant and an expert in function composition. You can answer general questions using your \
internal knowledge OR invoke functions when necessary. Follow these strict guidelines:

1. FUNCTION CALLS:
- ONLY use functions that are EXPLICITLY listed in the function list below
- If NO functions are listed (empty function list []), respond ONLY with internal knowledge or "I don't have access to \
[Unavailable service] information"
- If a function is not in the list, respond ONLY with internal knowledge or "I don't have access to [Unavailable \
service] information"
- If ALL required parameters are present AND the query EXACTLY matches a listed function's purpose: output ONLY the \
function call(s)
- Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]
Examples:
CORRECT: [get_weather(location="Vancouver"), calculate_route(start="Boston", end="New York")] <- Only if get_weather \
and calculate_route are in function list
INCORRECT: get_weather(location="New York")
INCORRECT: Let me check the weather: [get_weather(location="New York")]
INCORRECT: [get_events(location="Singapore")] <- If function not in list

2. RESPONSE RULES:
- For pure function requests matching a listed function: ONLY output the function call(s)
- For knowledge questions: ONLY output text
- For missing parameters: ONLY request the specific missing parameters
- For unavailable services (not in function list): output ONLY with internal knowledge or "I don't have access to \
[Unavailable service] information". Do NOT execute a function call.
- If the query asks for information beyond what a listed function provides: output ONLY with internal knowledge about \
your limitations
- NEVER combine text and function calls in the same response
- NEVER suggest alternative functions when the requested service is unavailable
- NEVER create or invent new functions not listed below

3. STRICT BOUNDARIES:
- ONLY use functions from the list below - no exceptions
- NEVER use a function as an alternative to unavailable information
- NEVER call functions not present in the function list
- NEVER add explanatory text to function calls
- NEVER respond with empty brackets
- Use proper Python/JSON syntax for function calls
- Check the function list carefully before responding

4. TOOL RESPONSE HANDLING:
- When receiving tool responses: provide concise, natural language responses
- Don't repeat tool response verbatim
- Don't add supplementary information

"""


def _llama4(opening: Opening) -> PromptHead:
    if not opening.tools:
        return PromptHead(
            "" if opening.system is None else opening.system.join(_turn4("system"))
        )
    tools = as_json([function_schema(tool) for tool in opening.tools], indent=4)
    if opening.system is None:
        system = _SYSTEM4 + _REQUEST4.replace("{how}", ":") + tools
    else:
        system = f"{opening.system}\n{_REQUEST4.replace('{how}', _HOW4)}{tools}"
    return PromptHead(system.join(_turn4("system")))


LLAMA4: Final = Template(
    _llama4,
    _turn4("user"),
    _turn4("assistant"),
    _turn4("ipython"),
    system=_turn4("system"),
    format_result=as_json,
    bos="<|begin_of_text|>",
    calls_bare=True,
)

# ---------------------------------------------------------------------- the dialects

_JSON = SYNTAXES["llama3"]
DIALECTS: Final[Mapping[str, PromptDialect]] = {
    **{
        name: PromptDialect(name, _JSON, META)
        for name in ("llama3", "llama3.1", "llama3.2", "llama3.3")
    },
    "llama3-vllm": PromptDialect(
        "llama3-vllm", _JSON, replace(META, head=_vllm, format_result=_as_output)
    ),
    "llama3.2-vllm": PromptDialect(
        "llama3.2-vllm",
        _JSON,
        replace(META, head=_vllm_small, format_result=_as_output),
    ),
    "llama3-pythonic": PromptDialect(
        "llama3-pythonic",
        SYNTAXES["llama3-pythonic"],
        replace(META, head=_pythonic, format_result=_as_output, single=False),
        names=PYTHON_NAMES,
    ),
    "llama4": PromptDialect("llama4", SYNTAXES["llama4"], LLAMA4, names=PYTHON_NAMES),
}
"""`llama3` is Meta's own template; the others are those that vLLM brings along."""
