"""What a programmer declares: tools, what they do to the world, and the sets that a run can see."""

from __future__ import annotations

from handrail.tools.function_tool import FunctionTool, tool
from handrail.tools.settings import Limits, Sandbox, Sends, Write
from handrail.tools.tool import BaseTool, Then, ToolSettings

__all__ = [
    "BaseTool",
    "FunctionTool",
    "Limits",
    "Sandbox",
    "Sends",
    "Then",
    "ToolSettings",
    "Write",
    "tool",
]
