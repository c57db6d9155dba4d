"""What a programmer declares: tools, what they do to the world, and the sets that a run can see."""

from __future__ import annotations

from handrail.tools.tool import BaseTool, FunctionTool, Then, ToolSettings, tool

__all__ = ["BaseTool", "FunctionTool", "Then", "ToolSettings", "tool"]
