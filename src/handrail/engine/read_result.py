"""`read_result`: the tool by which a model reads on where a result was cut."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic

from handrail.context import Context
from handrail.core import results
from handrail.errors import ToolError
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits, Sends, Write


def read_result(
    context: Context[Any],
    handle: str,
    offset: Annotated[int, pydantic.Field(ge=0)] = 0,
    limit: Annotated[int, pydantic.Field(ge=1, le=12_000)] = 8_000,
    pattern: str = "",
) -> dict[str, Any]:
    """Read more of a long result that was cut.

    Use when a result's note names a handle. Do not use it for anything else.

    Args:
        handle: The handle from the note, such as "r_1a2b3c".
        offset: Where to start, in characters from 0; with `pattern`, how many matches to skip.
        limit: How many characters to return at most.
        pattern: Return only lines that contain this text, of very long ones what surrounds it.

    Returns:
        `text`, and `next`: the offset to go on with, or null at the end.
    """
    text = context.read_kept(handle) if context.read_kept else None
    if text is None:
        raise ToolError(
            "UNKNOWN_HANDLE",
            f"There is no stored result {handle!r} in this run, or it is gone.",
            suggestion="Use a handle from a note of this conversation, or call the tool again and ask it for less.",
        )
    return results.page(text, offset, limit, pattern)


READ_RESULT = FunctionTool(
    read_result,
    effect="read",
    # what it reads on has come into the run before, with its own label
    sends=Sends(trust="trusted"),
    write=Write(repeatable=True),
    limits=Limits(result_bytes=48 * 1024),
)
