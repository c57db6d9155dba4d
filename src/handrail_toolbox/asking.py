"""Ask the user something in the middle of a run, and go on with the answer, however late it comes.

    from handrail_toolbox.asking import ask_user

The call waits: a run ends as `waiting` until the answer is delivered (`runtime.deliver`, `handrail approvals answer`)
and the run is resumed, in any process. Nobody agrees to anything by an answer: what needs approval asks for it itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from handrail.tools.function_tool import tool
from handrail.tools.settings import Sends, Write


@tool(
    effect="read",
    blocking=False,
    deferred=True,
    write=Write(repeatable=True),
    sends=Sends(directory=True),
)
def ask_user(question: str, options: Sequence[str] = ()) -> str:
    """Ask the user a question, and get the answer as text.

    Use when only the user can know, or has to choose. Do not use it to ask for permission: a tool that needs it asks.

    Args:
        question: One clear question, in the user's language.
        options: Answers to choose from, where there are a few. The user may answer otherwise.
    """
    # The result comes from outside: nothing is to be started for it.
    del question, options
    return ""
