"""A function as a tool, with `@tool` or from a JSON Schema; it can still be called with its own signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Unpack, overload

from typing_extensions import ParamSpec, TypeVar

from handrail.errors import Json
from handrail.parsing import strictjson
from handrail.schemas import hints
from handrail.tools.injection import find_injected_parameters
from handrail.tools.tool import BaseTool, ToolSettings

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
# Over the function's whole type: a list of tools with different signatures is still a list of tools for a type checker.
F_co = TypeVar("F_co", covariant=True, default=Callable[..., Any])


class FunctionTool(BaseTool, Generic[F_co]):
    """A function as a tool; it can still be called as the function it is.

    Args:
        fn: Sync or async. Its type hints and docstring describe it, unless `parameters` does.
        parameters: JSON Schema 2020-12 of the arguments; `fn` then gets them as keyword arguments, plain JSON values.
            Its parameters with the hint `Context` or `Injected` are filled as ever.
        settings: The attributes of `BaseTool`.

    Raises:
        ToolDefinitionError: It cannot be described to a model, or the declaration contradicts itself.
    """

    fn: F_co

    def __init__(
        self: FunctionTool[F],
        fn: F,
        *,
        parameters: Mapping[str, Json] | None = None,
        **settings: Unpack[ToolSettings],
    ) -> None:
        self._declare(settings, fn)
        self.fn = fn
        self.run = fn
        if "name" not in settings:
            self.name = getattr(fn, "__name__", type(fn).__name__)
        if parameters is not None:
            self._describe_by(parameters)
        elif not hints.is_plainly_hinted(fn):
            hints.check_parameters(fn, name=self.name)
        self.validate_declaration()

    def _describe_by(self, parameters: Mapping[str, Json]) -> None:
        """Take a schema, and what follows from it, in place of the function's signature."""
        schema = hints.import_schema(parameters, name=self.name)
        properties = schema.get("properties", {})
        injected = find_injected_parameters(self.fn, set(properties))
        self._describe(schema, strictjson.copy, injected)

    def __call__(
        self: FunctionTool[Callable[P, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return self.fn(*args, **kwargs)


@overload
def tool(fn: F, /, **settings: Unpack[ToolSettings]) -> FunctionTool[F]: ...
@overload
def tool(**settings: Unpack[ToolSettings]) -> Callable[[F], FunctionTool[F]]: ...
def tool(
    fn: Callable[..., Any] | None = None, /, **settings: Unpack[ToolSettings]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool: `@tool`, or `@tool(effect="read", timeout_s=5)` with the attributes of `BaseTool`.

    The schema comes from the type hints, the texts from the docstring (Google, NumPy, Sphinx or Chinese headings). The
    tool can be called as the function, with its signature.
    """

    def make_tool(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(function, **settings)

    if fn is None:
        return make_tool
    return make_tool(fn)
