"""Tools whose body belongs to somebody else: a framework keeps its tool, and handrail carries out its calls.

    pay = hr.adopt("pay", "Pay a bill.", schema, effect="write", key="bill:{number}")
    await runtime.calls([call], run="thread-1", inject=give_bodies({call.id: handler}))

Every check and promise of a call holds for an adopted tool, but nobody can end its body from outside: after its
deadline a plain function runs on, and a write is in doubt.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Annotated, Any, TypeAlias, Unpack

from msgspec import Struct

from handrail.context import Context, Injected
from handrail.errors import Json
from handrail.tools.function_tool import FunctionTool
from handrail.tools.tool import ToolSettings

Handler: TypeAlias = Callable[[dict[str, Any]], Any]
"""What carries out one call: it gets the arguments, and returns the value or something to await."""


class GivenBody(Struct, frozen=True):
    """The body of one call, with the context variables of whoever gave it."""

    handler: Handler
    variables: Variables

    def run(self, arguments: dict[str, Any]) -> Any:
        """Return what the handler returns; of an async one, something to await."""
        # A copy: a call that is tried again would enter the same one twice.
        variables = self.variables.copy()
        value = variables.run(self.handler, arguments)
        if inspect.isawaitable(value):
            return _await_within(value, variables)
        return value


async def _await_within(value: Awaitable[Any], variables: Variables) -> Any:
    """Await a value in a task that sees these context variables."""

    async def work() -> Any:
        return await value

    return await asyncio.get_running_loop().create_task(work(), context=variables)


def adopt(
    name: str,
    description: str,
    parameters: Mapping[str, Json],
    /,
    **settings: Unpack[ToolSettings],
) -> FunctionTool:
    """Return a tool whose body comes with each call, see `give_bodies`.

    Args:
        parameters: JSON Schema of the arguments.
        settings: The attributes of `BaseTool`, such as `effect` and `key`.

    Raises:
        ToolDefinitionError: It cannot be described to a model, or the declaration contradicts itself.
    """

    def run(
        handrail_context: Context[Any],
        handrail_bodies: Annotated[Mapping[str, GivenBody], Injected(secret=False)],
        **arguments: Any,
    ) -> Any:
        return handrail_bodies[handrail_context.call_id].run(arguments)

    settings["name"] = name
    settings["description"] = description
    return FunctionTool(run, parameters=parameters, **settings)


def give_bodies(
    handlers: Mapping[str, Handler], inject: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what is injected so that adopted tools carry out these calls.

    Args:
        handlers: By the id of the call. Each runs with the context variables of the code that calls this.
        inject: What is injected beside them.
    """
    variables = copy_context()
    return {
        **(inject or {}),
        "handrail_bodies": {
            call_id: GivenBody(handler, variables)
            for call_id, handler in handlers.items()
        },
    }
