"""Families whose answers can only be read: handrail has no chat template of theirs.

An answer can be parsed, streamed and constrained (`handrail.grammar`). To ask such a model, use the chat form of a
server that has the family's template.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from handrail.calls import ToolCall, ToolResult
from handrail.dialects import Conversation, ToolLike
from handrail.dialects.wires.base import refuse_effort
from handrail.errors import ConfigError
from handrail.messages import Options
from handrail_openmodels import parts
from handrail_openmodels.prompts.chat_template import Opening, PromptHead, Template
from handrail_openmodels.prompts.dialect import NAMES, PYTHON_NAMES, PromptDialect
from handrail_openmodels.prompts.literal_calls import PYTHON_QUOTES, LiteralCalls
from handrail_openmodels.prompts.syntaxes import SYNTAXES


class ReadOnlyDialect(PromptDialect, frozen=True):
    """A dialect that reads answers and writes no prompts."""

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> str:
        """Refuse to write a prompt.

        Raises:
            ConfigError: Always.
        """
        refuse_effort(self.name, options or Options())
        raise self._refusal()

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> str:
        """Refuse to write results.

        Raises:
            ConfigError: Always.
        """
        raise self._refusal()

    def _refusal(self) -> ConfigError:
        return ConfigError(
            f"{self.name} can only be read: handrail has no chat template of this family and writes no prompt for it"
        )


def _empty_head(_: Opening) -> PromptHead:
    return PromptHead()


_NO_TEMPLATE: Final = Template(_empty_head, ("", ""), ("", ""))


def _read_only(name: str) -> ReadOnlyDialect:
    syntax = SYNTAXES[name]
    writes_python = any(
        isinstance(each, LiteralCalls) and each.quotes == PYTHON_QUOTES
        for each in syntax.formats
    )
    return ReadOnlyDialect(
        name, syntax, _NO_TEMPLATE, names=PYTHON_NAMES if writes_python else NAMES
    )


DIALECTS: Final[Mapping[str, PromptDialect]] = {
    name: _read_only(name) for name in parts.UNPROMPTED
}
