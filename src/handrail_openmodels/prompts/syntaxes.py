"""The forms in which families of open models write their answers: one row a family.

A new family is a new row; a new form is a new `CallFormat`. The names are those under which `handrail.dialect` finds
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from handrail_openmodels.prompts.channels import Channels
from handrail_openmodels.prompts.json_calls import JsonCalls
from handrail_openmodels.prompts.literal_calls import LiteralCalls
from handrail_openmodels.prompts.named_calls import NamedCalls
from handrail_openmodels.prompts.parameter_calls import Element, ParameterCalls
from handrail_openmodels.prompts.reader import Reasoning, Syntax

# ---------------------------------------------------------------------- the control tokens of a template

_CHATML = Syntax(
    ends=("<|im_end|>", "<|endoftext|>"),
    others=(
        "<|im_start|>",
        "<tool_response>",
        "</tool_response>",
        "<tools>",
        "</tools>",
    ),
)
_LLAMA = Syntax(
    ends=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    others=(
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|python_tag|>",
    ),
)
_LLAMA4 = Syntax(
    ends=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
    others=("<|begin_of_text|>", "<|header_start|>", "<|header_end|>"),
)
_MISTRAL = Syntax(
    reasoning=Reasoning("[THINK]", "[/THINK]", layout=("", ""), after=""),
    ends=("</s>",),
    others=(
        "<s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CONTENT]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[ARGS]",
        "[CALL_ID]",
        "[IMG]",
    ),
)
_DEEPSEEK = Syntax(
    ends=("<｜end▁of▁sentence｜>",),
    others=(
        "<｜begin▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>",
    ),
)
_COHERE = Syntax(
    ends=("<|END_OF_TURN_TOKEN|>",),
    silent=(
        "<|START_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",  # a model that opens its turn once more
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        *("<co>", ("</co: ", ">")),  # citations
    ),
    others=(
        "<|USER_TOKEN|>",
        "<|SYSTEM_TOKEN|>",
        "<|START_TOOL_RESULT|>",
        "<|END_TOOL_RESULT|>",
    ),
)
_GRANITE = Syntax(
    ends=("<|end_of_text|>",), others=("<|start_of_role|>", "<|end_of_role|>")
)
_KIMI = Syntax(
    ends=("<|im_end|>", "[EOS]"),
    others=(
        "<|im_user|>",
        "<|im_assistant|>",
        "<|im_system|>",
        "<|im_middle|>",
        "[BOS]",
    ),
)
_GLM = Syntax(
    ends=("<|endoftext|>", "<|user|>", "<|observation|>"),
    others=(
        "[gMASK]",
        "<sop>",
        "<|system|>",
        "<|assistant|>",
        "<tool_response>",
        "</tool_response>",
    ),
)
_MINIMAX = Syntax(ends=("[e~[",), others=("]~!b[", "]~b]"))
_GEMMA4 = Syntax(
    ends=("<turn|>",),
    silent=("<|channel>thought\n<channel|>", "<|channel>", "<channel|>"),
    others=(
        "<bos>",
        "<|turn>",
        "<|tool>",
        "<tool|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|think|>",
    ),
)

# ---------------------------------------------------------------------- formats that several families share

_THINK = Reasoning()
_TIGHT = Reasoning(layout=("", ""), after="")
_TOOL_CALL = JsonCalls(("<tool_call>",), ("</tool_call>",), layout=("\n", "\n"))
_LIST = ("[", ", ", "]")
_LOOSE = tuple(
    bracket + after for bracket, first in ('{"', "[{") for after in f"{first} \t\r\n"
)
_TOOL_CALLS = JsonCalls(("<tool_calls>",), ("</tool_calls>",), listed=_LIST)
_FUNCTION = Element("<function=", ">", closes="</function>")
_PARAMETER = Element("<parameter=", ">", closes="</parameter>")
_ARGUMENT = Element("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "\n")


def _invoke(prefix: str, *, attributes: str = "") -> tuple[Element, Element]:
    """Return the elements `<invoke name="...">` and `<parameter name="...">`, whose tags begin with a prefix."""
    parameter = f"{prefix}parameter"
    return (
        Element(f'<{prefix}invoke name="', '"', ">", f"</{prefix}invoke>"),
        Element(f'<{parameter} name="', '"', ">", f"</{parameter}>", attributes),
    )


def _dsml(section: str) -> ParameterCalls:
    """Return DeepSeek's calls from V3.2 on; they mark each value as text or not."""
    sections = ((f"<｜DSML｜{section}>", f"</｜DSML｜{section}>"),)
    return ParameterCalls(
        *_invoke("｜DSML｜", attributes=' string="{is_text}"'), sections
    )


def _deepseek(
    lead: str, name_end: str, close: tuple[str, ...], *, between: str = ""
) -> NamedCalls:
    section = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
    return NamedCalls(
        "<｜tool▁call▁begin｜>",
        tuple(dict.fromkeys((name_end, name_end.replace("\n", "\r\n")))),
        section,
        lead,
        closes=(*close, "<｜tool▁call▁end｜>"),
        between=between,
    )


_CODER = ParameterCalls(
    _FUNCTION,
    _PARAMETER,
    (("<tool_call>", "</tool_call>"),),
    padding="\n",
    gathered=False,
)
_GLM_CALLS = ParameterCalls(
    Element("<tool_call>", "", closes="</tool_call>"), _ARGUMENT
)
_MISTRAL_LIST = JsonCalls(("[TOOL_CALLS]",), listed=_LIST, layout=(" ", ""), ids="last")
_MISTRAL_NAMED = NamedCalls("[TOOL_CALLS]", ("[ARGS]",), id_mark="[CALL_ID]")
_PYTHON_LISTS = (
    LiteralCalls(bare="["),
    LiteralCalls(("<|python_start|>",), ("<|python_end|>",)),
    LiteralCalls(loose=("\n[",), alone=True),
)
_XLAM = (
    JsonCalls(loose=_LOOSE, whole=True, listed=_LIST),
    JsonCalls(("<tool_call>",), ("</tool_call>",), whole=True),
    JsonCalls(("```json",), ("```",), whole=True),
    JsonCalls(("[TOOL_CALLS]",), whole=True),
)
_ATEM = ParameterCalls(
    *_invoke("atem:"), (("<atem:function_calls>", "</atem:function_calls>"),)
)

# ---------------------------------------------------------------------- the families

_ROWS: Final[Mapping[str, Syntax]] = {
    "plain": Syntax(),
    "hermes": replace(_CHATML, formats=(_TOOL_CALL,), reasoning=_THINK),
    "llama3": replace(
        _LLAMA,
        formats=(
            JsonCalls(
                arguments=("parameters", "arguments"),
                bare="{",
                exact=True,
                gathered=True,
                between="; ",
            ),
            JsonCalls(
                ("<|python_tag|>",),
                arguments=("parameters", "arguments"),
                gathered=True,
                between="; ",
            ),
            LiteralCalls(("<|python_tag|>",), listed=False, method=".call"),
        ),
    ),
    "llama3-pythonic": replace(
        _LLAMA,
        formats=(
            *_PYTHON_LISTS,
            LiteralCalls(("<|python_tag|>",), listed=False, method=".call"),
        ),
    ),
    "llama4": replace(_LLAMA4, formats=_PYTHON_LISTS),
    "mistral": replace(_MISTRAL, formats=(_MISTRAL_LIST, _MISTRAL_NAMED)),
    "mistral-v11": replace(_MISTRAL, formats=(_MISTRAL_NAMED, _MISTRAL_LIST)),
    "qwen3-coder": replace(
        _CHATML,
        formats=(_CODER,),
        reasoning=Reasoning(ended_by=("<tool_call>", "<function=")),
    ),
    "nemotron3": replace(
        _CHATML,
        formats=(_CODER,),
        reasoning=Reasoning(ended_by=("<tool_call>", "<function="), after="\n"),
    ),
    "step3.5": replace(
        _CHATML,
        formats=(replace(_CODER, between=""),),
        reasoning=Reasoning(ended_by=("<tool_call>", "<function="), after="\n"),
    ),
    "harmony": Syntax(
        channels=Channels(
            "<|start|>assistant",
            "<|message|>",
            ("<|end|>", "<|call|>", "<|return|>"),
            " to=",
            "<|channel|>",
            text="<|channel|>final",
            reasoning="<|channel|>analysis",
            thinks=("analysis",),
            speaks=("assistant", "user"),
            prefix="functions.",
            call="<|channel|>commentary json",
            preamble="<|channel|>commentary",
        ),
        others=("<|start|>", "<|constrain|>", "<|endoftext|>"),
    ),
    "deepseek-v3": replace(
        _DEEPSEEK,
        formats=(
            _deepseek(
                "function<｜tool▁sep｜>", "\n```json\n", ("\n```",), between="\n"
            ),
        ),
        reasoning=_THINK,
    ),
    "deepseek-v3.1": replace(
        _DEEPSEEK, formats=(_deepseek("", "<｜tool▁sep｜>", ()),), reasoning=_TIGHT
    ),
    "deepseek-v3.2": replace(
        _DEEPSEEK, formats=(_dsml("function_calls"),), reasoning=_TIGHT
    ),
    "deepseek-v4": replace(
        _DEEPSEEK,
        formats=(_dsml("tool_calls"),),
        reasoning=replace(_TIGHT, ended_by=("<｜DSML｜tool_calls>",)),
    ),
    "glm4": replace(_GLM, formats=(_GLM_CALLS,), reasoning=replace(_TIGHT, after="\n")),
    "glm4.7": replace(
        _GLM,
        formats=(
            replace(
                _GLM_CALLS,
                layout="",
                between="",
                parameter=replace(_ARGUMENT, attributes=""),
            ),
        ),
        reasoning=_TIGHT,
    ),
    "laguna": Syntax(
        formats=(_GLM_CALLS,),
        reasoning=replace(_THINK, after="\n"),
        ends=("</assistant>", "〈|EOS|〉"),
        others=(
            "<assistant>",
            *("<user>", "</user>", "<system>", "</system>"),
            *("<tool_response>", "</tool_response>"),
        ),
    ),
    "hy3": Syntax(
        formats=(
            ParameterCalls(
                Element(
                    "<tool_call:opensource>",
                    "<tool_sep:opensource>",
                    closes="</tool_call:opensource>",
                ),
                Element(
                    "<arg_key:opensource>",
                    "</arg_key:opensource>",
                    "<arg_value:opensource>",
                    "</arg_value:opensource>",
                    "\n",
                ),
                (("<tool_calls:opensource>", "</tool_calls:opensource>"),),
            ),
        ),
        reasoning=Reasoning(
            "<think:opensource>", "</think:opensource>", (), "", ("", "")
        ),
        ends=("<｜hy_eos:opensource｜>",),
        others=(
            "<｜hy_begin_of_sentence:opensource｜>",
            "<｜hy_User:opensource｜>",
            "<｜hy_Assistant:opensource｜>",
            "<｜reasoning_mode:opensource｜>",
        ),
    ),
    "ling3": Syntax(
        formats=(_GLM_CALLS,),
        reasoning=replace(_TIGHT, ended_by=("<tool_call>",)),
        ends=("<|role_end|>",),
        others=("<role>", "</role>", "<tool_response>", "</tool_response>"),
    ),
    "spark": Syntax(
        formats=(
            replace(
                _GLM_CALLS,
                parameter=replace(_ARGUMENT, attributes=""),
                layout="",
                between="",
            ),
        ),
        reasoning=_TIGHT,
        ends=("<｜end▁of▁sentence｜>",),
        others=(
            "<｜start▁of▁sentence｜>",
            "<|Bot|>",
            "<|User|>",
            "<|System|>",
            "<|Tool|>",
        ),
    ),
    "kimi-k2": replace(
        _KIMI,
        formats=(
            NamedCalls(
                "<|tool_call_begin|>",
                ("<|tool_call_argument_begin|>",),
                ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
                closes=("<|tool_call_end|>",),
                counted=True,
            ),
        ),
        reasoning=replace(
            _TIGHT, ended_by=("<|tool_calls_section_begin|>", "<|tool_call_begin|>")
        ),
    ),
    "kimi-k3": Syntax(
        formats=(
            ParameterCalls(
                Element(
                    '<|open|>call tool="',
                    '"',
                    "<|sep|>",
                    "<|close|>call<|sep|>",
                    ' index="{position}"',
                ),
                Element(
                    '<|open|>argument key="',
                    '"',
                    "<|sep|>",
                    "<|close|>argument<|sep|>",
                    ' type="{type}"',
                ),
                (("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),),
                layout="",
                between="",
            ),
        ),
        reasoning=Reasoning(
            "<|open|>think<|sep|>",
            "<|close|>think<|sep|>",
            ("<|open|>response<|sep|>",),
            "",
            ("", ""),
        ),
        silent=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        ends=("<|close|>message<|sep|>", "<|im_end|>"),
        others=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    "minimax-m2": replace(
        _MINIMAX,
        formats=(
            ParameterCalls(
                *_invoke(""), (("<minimax:tool_call>", "</minimax:tool_call>"),)
            ),
        ),
        reasoning=_THINK,
    ),
    "minimax-m3": replace(
        _MINIMAX,
        formats=(
            ParameterCalls(
                Element(
                    ']<]minimax[>[<invoke name="', '"', ">", "]<]minimax[>[</invoke>"
                ),
                Element("]<]minimax[>[<", ">", closes="]<]minimax[>[</{name}>"),
                (("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"),),
                inside="",
                nested=True,
            ),
        ),
        reasoning=Reasoning("<mm:think>", "</mm:think>", (), "", ("", "")),
        others=("]~!b[", "]~b]", "]<]minimax[>["),
    ),
    "gemma4": replace(
        _GEMMA4,
        formats=(
            LiteralCalls(
                ("<|tool_call>",),
                ("<tool_call|>",),
                listed=False,
                lead="call:",
                bracket="{",
                equals=":",
                quotes=('<|"|>',),
            ),
        ),
        reasoning=Reasoning("<|channel>thought", "<channel|>", (), "", ("\n", "\n")),
    ),
    "functiongemma": Syntax(
        formats=(
            LiteralCalls(
                ("<start_function_call>",),
                ("<end_function_call>",),
                listed=False,
                lead="call:",
                bracket="{",
                equals=":",
                quotes=("<escape>",),
            ),
        ),
        ends=("<end_of_turn>", "<start_function_response>"),
        others=("<bos>", "<start_of_turn>", "<end_function_response>"),
    ),
    "granite3": replace(
        _GRANITE,
        formats=(
            JsonCalls(("<|tool_call|>",), listed=_LIST),
            JsonCalls(("<tool_call>",), ("</tool_call>",)),
        ),
        reasoning=_THINK,
    ),
    "granite4": replace(_GRANITE, formats=(_TOOL_CALL,)),
    "granite-20b": Syntax(
        formats=(JsonCalls(("<function_call>",), layout=(" ", "")),),
        ends=("<|endoftext|>",),
        others=("<function_response>",),
    ),
    "lfm2": replace(
        _CHATML,
        formats=(LiteralCalls(("<|tool_call_start|>",), ("<|tool_call_end|>",)),),
        reasoning=_TIGHT,
        others=(
            *_CHATML.others,
            "<|startoftext|>",
            "<|tool_response_start|>",
            "<|tool_response_end|>",
            "<|tool_list_start|>",
            "<|tool_list_end|>",
        ),
    ),
    "olmo3": replace(
        _CHATML,
        formats=(
            LiteralCalls(("<function_calls>",), ("</function_calls>",), listed=False),
        ),
    ),
    "cohere": replace(
        _COHERE,
        formats=(
            JsonCalls(
                ("<|START_ACTION|>",),
                ("<|END_ACTION|>",),
                ("tool_name", "name"),
                ("parameters", "arguments"),
                ("tool_call_id", "id"),
                listed=("[\n    ", ",\n    ", "\n]"),
                ids="first",
            ),
        ),
        reasoning=Reasoning("<|START_THINKING|>", "<|END_THINKING|>", (), "", ("", "")),
    ),
    "command-r": replace(
        _COHERE,
        formats=(
            JsonCalls(
                tuple(
                    f"Action:{between}```json{newline}"
                    for newline in ("\n", "\r\n")
                    for between in (" ", "", newline)
                ),
                ("```",),
                ("tool_name", "name"),
                ("parameters", "arguments"),
                listed=_LIST,
            ),
        ),
    ),
    "functionary-v3.1": replace(
        _LLAMA, formats=(NamedCalls("<function=", (">",), closes=("</function>",)),)
    ),
    "functionary-v3.2": replace(
        _LLAMA,
        channels=Channels(
            ">>>", "\n", ("<|eot_id|>",), text="all", speaks=("all",), first=">>>"
        ),
    ),
    "functools": Syntax(
        formats=(JsonCalls(("functools",), listed=_LIST),),
        ends=("<|end|>", "<|eot_id|>"),
        others=("<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"),
    ),
    "gigachat": Syntax(
        formats=(
            JsonCalls(
                ("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")
            ),
        ),
        ends=("</s>", "<|message_sep|>"),
        others=("<s>", "<|role_sep|>"),
    ),
    "hunyuan": Syntax(
        formats=(_TOOL_CALLS,),
        reasoning=_THINK,
        silent=("<answer>", "</answer>"),
        ends=("<|eos|>",),
        others=("<|startoftext|>", "<|extra_0|>", "<|extra_4|>"),
    ),
    "jamba": Syntax(
        formats=(_TOOL_CALLS,),
        ends=("<|eom|>", "<|endoftext|>"),
        others=("<|bom|>", "<|startoftext|>"),
    ),
    "apriel": Syntax(
        formats=(_TOOL_CALLS,),
        reasoning=Reasoning(
            "Here are my reasoning steps:\n",
            "[BEGIN FINAL RESPONSE]",
            (),
            "\n",
            ("", "\n"),
        ),
        silent=("[END FINAL RESPONSE]",),
        ends=("<|end|>",),
        others=(
            "<|begin_system|>",
            "<|begin_user|>",
            "<|begin_assistant|>",
            "<|begin_tool_result|>",
        ),
    ),
    "internlm2": replace(
        _CHATML,
        formats=(
            JsonCalls(
                ("<|action_start|><|plugin|>",),
                ("<|action_end|>",),
                layout=("\n", ""),
                between="",
            ),
        ),
        others=(*_CHATML.others, "<|action_start|>", "<|plugin|>", "<|interpreter|>"),
    ),
    "nemotron-nano-v2": Syntax(
        formats=(JsonCalls(("<TOOLCALL>",), ("</TOOLCALL>",), listed=_LIST),),
        reasoning=replace(_THINK, after="\n"),
        ends=("<SPECIAL_12>",),
        others=("<SPECIAL_10>", "<SPECIAL_11>", "<TOOL_RESPONSE>", "</TOOL_RESPONSE>"),
    ),
    "longcat": Syntax(
        formats=(JsonCalls(("<longcat_tool_call>",), ("</longcat_tool_call>",)),),
        ends=("</longcat_s>",),
        others=("<longcat_s>",),
    ),
    "apertus": Syntax(
        formats=(
            JsonCalls(
                ("<|tools_prefix|>",), ("<|tools_suffix|>",), by_name=True, listed=_LIST
            ),
        ),
        reasoning=Reasoning("<|inner_prefix|>", "<|inner_suffix|>", (), "", ("", "")),
        ends=("<|assistant_end|>",),
        others=(
            "<|assistant_start|>",
            "<|user_start|>",
            "<|user_end|>",
            "<|system_start|>",
            "<|system_end|>",
            "<|developer_start|>",
            "<|developer_end|>",
        ),
    ),
    "reka": Syntax(
        formats=(replace(_TOOL_CALL, between=""),), reasoning=_THINK, ends=("<sep>",)
    ),
    "ernie4.5": Syntax(
        formats=(_TOOL_CALL,),
        reasoning=_THINK,
        silent=("<response>", "</response>"),
        ends=("<|im_end|>", "</s>"),
        others=("<|im_start|>", "<s>", "<tool_output>", "</tool_output>"),
    ),
    "seed-oss": Syntax(
        formats=(
            ParameterCalls(
                _FUNCTION,
                _PARAMETER,
                (("<seed:tool_call>", "</seed:tool_call>"),),
                gathered=False,
            ),
        ),
        reasoning=Reasoning("<seed:think>", "</seed:think>", (), "\n", ("", "")),
        ends=("<seed:eos>",),
        others=("<seed:bos>",),
    ),
    "minicpm5": replace(
        _CHATML,
        formats=(
            ParameterCalls(
                Element('<function name="', '"', ">", "</function>"),
                Element('<param name="', '"', ">", "</param>"),
                layout="",
                cdata=True,
            ),
        ),
        reasoning=_THINK,
    ),
    "step3": Syntax(
        formats=(
            ParameterCalls(
                *_invoke("steptml:"),
                (("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),),
                ("<｜tool_call_begin｜>", "function<｜tool_sep｜>"),
                ("<｜tool_call_end｜>",),
                layout="",
                between="",
            ),
        ),
        reasoning=_THINK,
        ends=("<｜end▁of▁sentence｜>",),
    ),
    "muse": Syntax(
        channels=Channels(
            "<|start|>assistant",
            "<|message|>",
            ("<|eom|>", "<|eot|>"),
            " to=",
            text=" to=user",
            reasoning=" to=self",
            thinks=("self",),
            speaks=("user",),
            inside=_ATEM,
        ),
        others=("<|start|>",),
    ),
    "xlam": replace(_CHATML, formats=_XLAM),
    "xlam-llama": replace(_LLAMA, formats=_XLAM),
    "generic-json": Syntax(formats=(JsonCalls(loose=_LOOSE, whole=True),)),
}

_ALIASES: Final = {
    "hermes-2-pro": "hermes",
    "qwen2.5": "hermes",
    "qwen3": "hermes",
    "llama3.1": "llama3",
    "llama3.2": "llama3",
    "llama3.3": "llama3",
    "qwen3.5": "qwen3-coder",
    "gpt-oss": "harmony",
    "deepseek-r1": "deepseek-v3",
    "phi4-mini": "functools",
    "firefunction-v2": "functools",
    "command-r7b": "cohere",
    "command-a": "cohere",
}

SYNTAXES: Final[Mapping[str, Syntax]] = MappingProxyType(
    {**_ROWS, **{alias: _ROWS[name] for alias, name in _ALIASES.items()}}
)
"""The form of each family, by the name of the family or of a model that writes like it."""
