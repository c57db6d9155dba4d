"""A grammar as a user has it, and how it is made of tools or of an answer's form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from handrail import _lazy
from handrail._lazy import cached_property
from handrail.core.structured_output import OutputSchema, plan
from handrail.dialects import dialect as find_dialect
from handrail.dialects import writing
from handrail.errors import ConfigError, Json
from handrail.tools.toolset import Toolset
from handrail_openmodels.grammars.answers import START, Answer, Choices, make_answer
from handrail_openmodels.grammars.expressions import Rules
from handrail_openmodels.grammars.lark import write_lark
from handrail_openmodels.grammars.schemas import Losses, prepare
from handrail_openmodels.grammars.shapes import ToolSchema
from handrail_openmodels.grammars.structural_tags import write_schema_tag, write_tags
from handrail_openmodels.grammars.values import json_value
from handrail_openmodels.prompts.dialect import PromptDialect

if TYPE_CHECKING:
    from handrail_openmodels.grammars import masks
else:
    masks = _lazy.module("handrail_openmodels.grammars.masks")

ENGINES: Final = ("vllm", "sglang", "llama.cpp")
"""The servers whose fields a grammar can be written in."""


class Grammar(Struct, frozen=True, dict=True):  # it keeps what it has worked out
    """What may be written, for any decoder.

    Attributes:
        dialect: The family of models whose answers it describes; empty for the form of an answer alone.
        answer: The grammar itself where it is one of answers.
        rules: All rules, in nobody's notation; the rule `start` is the whole text.
        schema: The form of the answer, where there are no tools.
        end_marks: What ends an answer of this family.
        tokens: Every control token of the family.
    """

    dialect: str
    rules: Rules
    answer: Answer | None = None
    schema: Mapping[str, Json] | None = None
    losses: Mapping[str, Losses] = {}
    end_marks: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    opened: str = ""

    @cached_property
    def tags(self) -> dict[str, Json]:
        """The structural tag, as xgrammar, vLLM and SGLang read it."""
        if self.answer is None:
            return write_schema_tag(dict(self.schema or {}))
        return write_tags(self.answer)

    @cached_property
    def lark(self) -> str:
        """The grammar as llguidance's Lark."""
        return write_lark(self.rules)

    @property
    def lossy(self) -> tuple[str, ...]:
        """What the grammar cannot express, a sentence each; it is checked when the call comes."""
        return tuple(
            f"{_place(tool, path)}: {what}"
            for tool, losses in self.losses.items()
            for path, what in losses.items()
        )

    def fields(self, engine: str) -> dict[str, Json]:
        """Return the fields of a server's request that hold it to the grammar.

        Args:
            engine: `vllm`, `sglang` or `llama.cpp`, which reads Lark where it is built with llguidance.

        Raises:
            ConfigError: There is no form for such a server.
        """
        match engine:
            case "vllm":
                text = json.dumps(self.tags, ensure_ascii=False)
                return {"structured_outputs": {"structural_tag": text}}
            case "sglang":
                return {"response_format": self.tags}
            case "llama.cpp":
                return {"grammar": f"%llguidance {{}}\n{self.lark}"}
            case _:
                raise ConfigError(
                    f"no server {engine!r} is known; a grammar has fields for {', '.join(ENGINES)}"
                )

    def mask(self, tokenizer: Any) -> masks.Mask:
        """Return a logits processor for one's own decoding, as transformers and llama-cpp-python take it.

        Args:
            tokenizer: A fast tokenizer of transformers, a `Llama` of llama-cpp-python, an `LLTokenizer`, or any object
                with `tokens` (bytes by id) and `eos_token_id`. Reading one takes a second: keep the mask.

        Raises:
            ConfigError: The extra `openmodels` is not installed, or the tokenizer is none of these.
        """
        inside = frozenset(self.tokens) - frozenset(self.end_marks)
        return masks.Mask(self.lark, tokenizer, masks.Marks(inside, self.end_marks))

    def __repr__(self) -> str:
        tools = self.answer.section.tags if self.answer and self.answer.section else ()
        names = dict.fromkeys(tag.name for tag in tools)
        what = f"{len(names)} tools in {self.dialect}" if self.answer else "an answer"
        return f"<Grammar: {what}>"


def _place(tool: str, path: str) -> str:
    return ".".join(each for each in (tool, path) if each)


def grammar(
    tools: Toolset | Iterable[Any] = (),
    dialect: str | PromptDialect = "",
    *,
    output: Any = None,
    tool_choice: str = "auto",
    parallel: bool = True,
    opened: str | None = None,
    forbidden: Iterable[str] = (),
) -> Grammar:
    """Return the grammar of what a model may write: calls to these tools in its family's form, or one answer.

    Args:
        tools: The tools that it may call.
        dialect: The family: the name of a prompt dialect, such as `qwen3-coder`.
        output: The form of the answer instead: a pydantic model, or whatever `Runtime.run(output=...)` takes.
        tool_choice: `auto`, `required`, `none`, or the name of the tool that must be called.
        parallel: Whether several calls may come in one answer, where the family has that.
        opened: What the prompt already holds of the answer; by default what every prompt of the family opens, such as
            `<think>`. A prompt that opens a call has no use here: the grammar does the same.
        forbidden: Tools that may not be called.

    Raises:
        ConfigError: There is no such dialect, it is that of a provider's messages, `tool_choice` names no tool, or both
            tools and `output` are given.
    """
    if output is not None:
        if tools or dialect:
            raise ConfigError("a grammar is that of tools in a dialect, or of `output`")
        return _of_output(plan(output))
    family = find_dialect(dialect) if isinstance(dialect, str) and dialect else dialect
    if not isinstance(family, PromptDialect):
        raise ConfigError(
            f"a grammar needs the form in which a family of models writes its calls, not {dialect!r}; "
            'name a prompt dialect, such as "hermes" or "qwen3-coder"'
        )
    given = tools if hasattr(tools, "compute_once") else Toolset(list(tools))
    wanted = _Wanted(family, tool_choice, parallel, opened, frozenset(forbidden))
    made: Grammar = given.compute_once(
        ("grammar", wanted), lambda: _of_tools(given, wanted)
    )
    return made


class _Wanted(Struct, frozen=True):
    """What a grammar of tools depends on beside the tools."""

    family: PromptDialect
    tool_choice: str
    parallel: bool
    opened: str | None
    forbidden: frozenset[str]


def _of_tools(tools: Iterable[Any], wanted: _Wanted) -> Grammar:
    family = wanted.family
    tool_choice = wanted.tool_choice
    names = writing.name_map(tools, family.names)
    callable_tools = [
        ToolSchema(names.to_wire(tool.name), dict(tool.parameters))
        for tool in tools
        if tool_choice in ("auto", "required", tool.name)
        and tool.name not in wanted.forbidden
    ]
    if not callable_tools and tool_choice not in ("auto", "none"):
        raise ConfigError(
            f"tool_choice is {tool_choice!r}, and no tool is there to be called"
        )
    is_one = tool_choice not in ("auto", "required", "none")
    choices = Choices(
        may_answer=tool_choice in ("auto", "none"),
        may_call=tool_choice != "none",
        parallel=wanted.parallel and not family.template.single and not is_one,
        opened=family.template.opens if wanted.opened is None else wanted.opened,
    )
    answer = make_answer(family, callable_tools, choices)
    return Grammar(
        family.name,
        answer.rules,
        answer,
        losses=answer.losses,
        end_marks=family.stops,
        tokens=family.tokens,
        opened=choices.opened,
    )


def _of_output(form: OutputSchema) -> Grammar:
    losses: Losses = {}
    prepared = prepare(form.schema, losses)
    if prepared is None:
        raise ConfigError(f"nothing fits the form {form.name}: {losses}")
    rules = Rules({START: json_value(prepared, prepared)})
    return Grammar("", rules, schema=form.schema, losses={form.name: losses})
