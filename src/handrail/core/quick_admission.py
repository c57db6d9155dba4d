"""Quick admission: one function takes all steps of the admission of an ordinary call, or leaves the call to them.

When both ways were measured, a run of ten turns with four calls each cost 1.54 times the loop that anybody writes first
without it, and 1.13 times with it (`python -m benchmarks loop`). `docs/decisions/0012-the-short-way.md` says what was
tried.

Rule 1: it admits what `parse_call` and `admit` would admit, with an equal result. It refuses nothing: what it is not
        certain of is theirs. A property test in `tests/core/test_quick_admission.py` compares both.
"""

from __future__ import annotations

from handrail.calls import ToolCall
from handrail.core.admission import Admitted
from handrail.core.policy import Decision, Policy
from handrail.errors import Failure
from handrail.parsing import strictjson
from handrail.tools.tool import BaseTool

_ALLOW = Decision.ALLOW


def admit_quickly(
    call: ToolCall, tool: BaseTool, policy: Policy, default_key: str = ""
) -> Admitted | None:
    """Return what `parse_call` and `admit` would return for a plain call; None leaves the call to them.

    A plain call is one of a plain tool, with an object of one reading that fits unchanged, which the policy allows. A
    policy class of one's own is not asked here, since it would be asked twice about what it refuses.

    Args:
        default_key: The key of a write whose tool declares none, which no write is admitted without.
    """
    traits = tool.call_traits
    fits = traits.plain_check
    if fits is None or policy.__class__ is not Policy or call.program:
        return None
    if traits.writes:
        if not default_key:
            return None
    else:
        default_key = ""
    arguments = strictjson.load_plain_object(call.arguments)
    try:
        if arguments is None or not fits(arguments):
            return None
        bound = (
            traits.defaults | arguments if traits.as_written else tool.bind(arguments)
        )
        if type(bound) is Failure:
            return None
        # what decides by arguments, the ledger and resources see what the tool gets
        if policy.rules or default_key or traits.has_resource:
            arguments = tool.normalize_arguments(arguments, bound)
        verdict = policy.judge(tool, arguments)
        if verdict.decision is not _ALLOW:
            return None
        resources = tool.resolve_resources(arguments) if traits.has_resource else ()
    except KeyboardInterrupt:
        raise
    except BaseException:
        # what JSON cannot hold, or the author's own validator: `admit` says what it is
        return None
    return Admitted(
        call,
        tool,
        traits,
        arguments,
        bound,
        verdict,
        key=default_key,
        resources=resources,
    )
