"""Calls under frameworks that tell a tool neither its conversation nor the id of its call.

The application names the run. Without an id of the framework each call gets a new one, so its run and arguments, or the
key that its tool declares, identify a repeated write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from msgspec import Struct

from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail_frameworks.shared import Options, Steps, hand_over


class Calls(Struct, frozen=True):
    """Carries out the calls of one conversation.

    Attributes:
        run: Names the conversation.
        options: Returns options of `Runtime.calls` from the name of a tool; they may have another `run`.
    """

    run: str
    options: Options | None = None

    def settings(self, name: str) -> dict[str, Any]:
        """Return the options of a call of this tool."""
        return {"run": self.run, **(self.options(name) if self.options else {})}

    def carry_out(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str = "",
        word: Approval | None = None,
    ) -> Steps[ToolResult]:
        """Carry out one call; its result may be a question.

        Args:
            word: A person's decision on the question that the call waits for.
        """
        call = ToolCall(call_id or f"call_{uuid4().hex}", name, json.dumps(arguments))
        how = self.settings(name)
        if word is not None:
            how["words"] = {call.id: word}
        (result,) = yield lambda runtime: hand_over(runtime, [call], how)
        return result  # type: ignore[no-any-return]
