"""Faults that a tool's source shows without running it: calls that block, errors that the model will not understand.

Only the tool's own function is read, not what it calls. What cannot be resolved for certain is left alone.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from handrail.errors import NoEffect, ToolError

_BLOCKING = {
    "time.sleep": "asyncio.sleep",
    "requests.get": "httpx2.AsyncClient",
    "requests.post": "httpx2.AsyncClient",
    "requests.put": "httpx2.AsyncClient",
    "requests.patch": "httpx2.AsyncClient",
    "requests.delete": "httpx2.AsyncClient",
    "requests.request": "httpx2.AsyncClient",
    "urllib.request.urlopen": "httpx2.AsyncClient",
    "subprocess.run": "asyncio.create_subprocess_exec",
    "subprocess.check_output": "asyncio.create_subprocess_exec",
    "subprocess.check_call": "asyncio.create_subprocess_exec",
    "subprocess.call": "asyncio.create_subprocess_exec",
    "os.system": "asyncio.create_subprocess_exec",
}
"""Calls that hold up the event loop, and with it every deadline, and what does not."""

_UNDERSTOOD = (ToolError, NoEffect, ConnectionError, TimeoutError)
"""What a tool may raise: the first two speak to the model, the others say that what failed may pass."""

_BROAD = ("Exception", "BaseException")
_ERROR_KEYS = ("error", "错误", "err")


class Seen(Struct, frozen=True):
    """One thing in a function's source: the line below its head, what is written there, and what should be."""

    line: int
    what: str
    instead: str


def blocking_calls(function: Callable[..., Any]) -> Iterator[Seen]:
    """Yield the calls in a coroutine function that block the event loop."""
    if not inspect.iscoroutinefunction(function):
        return
    for node in _nodes(function):
        if (
            isinstance(node, ast.Call)
            and (name := _qualify_name(node.func, function)) in _BLOCKING
        ):
            yield Seen(
                node.lineno,
                f"calls `{name}`, which holds up every other call",
                f"`{_BLOCKING[name]}`",
            )


def checks_cancellation(function: Callable[..., Any]) -> bool:
    """Whether a function looks at `context.cancelled` or at its deadline, as one in a thread must to end in time."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in _ENDS
        for node in _nodes(function)
    )


_ENDS = ("cancelled", "deadline", "remaining_s")


def ends_by_itself(function: Callable[..., Any]) -> bool:
    """Return whether a function certainly ends soon: no loop, and calls of nothing but built-ins and exceptions.

    False where that cannot be seen: the functions that it calls are not read.
    """
    nodes = list(_nodes(function))
    if not nodes or any(isinstance(node, _MAY_LAST) for node in nodes):
        return False
    return all(
        _is_quick(_resolve(node.func, function))
        for node in nodes
        if isinstance(node, ast.Call)
    )


_MAY_LAST = (
    ast.While,
    ast.For,
    ast.With,
    ast.comprehension,
    ast.Yield,
    ast.YieldFrom,
    ast.Import,
    ast.ImportFrom,
)
_SLOW_BUILTINS = {
    "open",
    "input",
    "print",
    "exec",
    "eval",
    "compile",
    "breakpoint",
    "__import__",
}


def _is_quick(called: Any) -> bool:
    if isinstance(called, type) and issubclass(called, Exception):
        return True
    is_builtin = getattr(called, "__module__", "") == "builtins"
    return is_builtin and getattr(called, "__name__", "") not in _SLOW_BUILTINS


def requests_in(function: Callable[..., Any]) -> list[int]:
    """Return the lines in which a function calls a library's request function, such as `requests.post`."""
    calls = (node for node in _nodes(function) if isinstance(node, ast.Call))
    return sorted(
        node.lineno for node in calls if _sends(_resolve(node.func, function))
    )


def _sends(called: Any) -> bool:
    home = getattr(called, "__module__", None) or ""
    name = getattr(called, "__name__", "")
    if home.partition(".")[0] in ("requests", "httpx", "httpx2"):
        return name in (
            "get",
            "options",
            "head",
            "post",
            "put",
            "patch",
            "delete",
            "request",
            "stream",
        )
    return (home, name) == ("urllib.request", "urlopen")


def unclear_errors(function: Callable[..., Any]) -> Iterator[Seen]:
    """Yield where a function fails in a way from which the model cannot go on."""
    for node in _nodes(function):
        if isinstance(node, ast.Raise) and (kind := _find_raised(node, function)):
            instead = '`raise hr.ToolError("ORDER_NOT_FOUND", "…", suggestion="…")`'
            yield Seen(
                node.lineno,
                f"raises {kind}, of which the model reads INTERNAL_ERROR and nothing else",
                instead,
            )
        elif isinstance(node, ast.Call) and _is_silent_error(node, function):
            yield Seen(
                node.lineno,
                "raises a ToolError that does not say what to do next",
                '`suggestion="…"`',
            )
        elif isinstance(node, ast.ExceptHandler) and _swallows(node):
            yield Seen(
                node.lineno,
                "takes every exception for a result",
                "let it raise, or raise `hr.ToolError` from it",
            )
        elif isinstance(node, ast.Return) and _is_error_value(node.value):
            yield Seen(
                node.lineno,
                "returns an error as if it were a result",
                '`raise hr.ToolError(…, suggestion="…")`',
            )


def _nodes(function: Callable[..., Any]) -> Iterator[ast.AST]:
    """Yield the nodes of the function's own body, without those of functions and classes inside of it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        # no source: built in, made at run time, or part of an expression
        return
    waiting: list[ast.AST] = [
        part
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in node.body
    ]
    while waiting:
        node = waiting.pop(0)
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
        ):
            continue
        yield node
        waiting[:0] = ast.iter_child_nodes(node)


def _qualify_name(node: ast.AST, function: Callable[..., Any]) -> str:
    """Return the full name that an expression has, whatever its module was imported as."""
    target = _resolve(node, function)
    name = getattr(target, "__name__", "")
    home = getattr(target, "__module__", "")
    spelled = f"{home}.{name}"
    return {
        "requests.api": f"requests.{name}",
        "posix": f"os.{name}",
        "nt": f"os.{name}",
    }.get(home, spelled)


def _resolve(node: ast.AST, function: Callable[..., Any]) -> Any:
    """Return the object that a name refers to at the top level of the function's module, or None."""
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    if isinstance(node, ast.Name):
        return scope.get(node.id, getattr(builtins, node.id, None))
    if (
        isinstance(node, ast.Attribute)
        and (owner := _resolve(node.value, function)) is not None
    ):
        return inspect.getattr_static(owner, node.attr, None) or getattr(
            owner, node.attr, None
        )
    return None


def _find_raised(node: ast.Raise, function: Callable[..., Any]) -> str:
    """Return the name of an exception that the model would not understand; empty for any other."""
    expression = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    if expression is None:
        return ""
    kind = _resolve(expression, function)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return ""
    return "" if issubclass(kind, _UNDERSTOOD) else kind.__name__


def _is_silent_error(node: ast.Call, function: Callable[..., Any]) -> bool:
    kind = _resolve(node.func, function)
    says = any(each.arg in ("suggestion", None) for each in node.keywords)
    return (
        isinstance(kind, type) and issubclass(kind, ToolError | NoEffect) and not says
    )


def _swallows(node: ast.ExceptHandler) -> bool:
    broad = node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in _BROAD
    )
    raises = any(
        isinstance(each, ast.Raise) for part in node.body for each in ast.walk(part)
    )
    return broad and not raises


def _is_error_value(value: ast.AST | None) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_error_value(value.body) or _is_error_value(value.orelse)
    if isinstance(value, ast.Dict):
        return any(
            isinstance(key, ast.Constant) and key.value in _ERROR_KEYS
            for key in value.keys
        )
    return (
        isinstance(value, ast.Constant)
        and isinstance(value.value, str)
        and value.value.lower().startswith("error")
    )
