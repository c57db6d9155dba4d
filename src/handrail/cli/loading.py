"""Tools from a file or a module, named on the command line.

    examples/weather.py          every tool at the top level of the file
    company.tools                the same of a module on the path
    company.tools:billing        one attribute: a tool, a function, a toolset, or a list of these
    openapi:shop.json            the operations of an OpenAPI document; `@https://...` behind it says where they are
    mcp:npx -y shop-server       the tools of an MCP server: a command line, an address, or a name in handrail.toml

Rule 1: a bare function is a tool only when it is named; at the top level of a file it may be anything.
Rule 2: a fault in the user's file is one sentence with its location, and every tool is described and compiled here, so
        that no mistake waits for its first call.
Rule 3: what the file prints while it is imported goes to stderr; stdout is for our results.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module, util
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from handrail import plugins
from handrail.errors import ConfigError, HandrailError
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

OPENAPI = "openapi:"
"""The prefix of an OpenAPI document whose operations become tools."""


def tools_from(places: Iterable[str]) -> Toolset:
    """Return the tools of all these places as one set, each compiled.

    Raises:
        ConfigError: A place cannot be found, imported, or has no tools.
        SetupError: A tool cannot be described, or two have one name.
    """
    by_identity: dict[int, BaseTool] = {}
    for place in places:
        for tool in _tools_at(place):
            # one tool under two names, or alone and in a toolset, is still one tool
            by_identity[id(tool)] = tool
    tools = Toolset(by_identity.values())
    for tool in tools:
        _ = tool.checker, tool.bind
    return tools


def _tools_at(place: str) -> Iterable[BaseTool]:
    kind, colon, rest = place.partition(":")
    if colon and kind in plugins.list_added("places"):
        added: Toolset = plugins.load("places", kind)(rest)
        return added
    path, attribute = _split(place)
    module = _module(path)
    if attribute:
        return _attribute_tools(module, path, attribute)
    tools = [
        tool for value in list(vars(module).values()) for tool in _iter_tools(value)
    ]
    if class_name := next(_find_idle_classes(module, tools), None):
        raise _class_error(class_name, getattr(module, class_name), path)
    if not tools:
        raise ConfigError(f"no tools in {path}: {_hint(module)}")
    return tools


def _split(place: str) -> tuple[str, str]:
    """Split the attribute off the place; the colon of a drive letter does not count."""
    path, colon, attribute = place.rpartition(":")
    if colon and path and attribute.isidentifier():
        return (path, attribute)
    return (place, "")


def _iter_tools(value: Any) -> Iterator[BaseTool]:
    if isinstance(value, BaseTool):
        yield value
    elif isinstance(value, Toolset):
        yield from value


def _find_idle_classes(module: ModuleType, tools: Sequence[BaseTool]) -> Iterator[str]:
    """Yield the tool classes that the module defines without creating one."""
    values = [*tools, *vars(module).values()]
    for name, value in vars(module).items():
        if (
            isinstance(value, type)
            and value.__module__ == module.__name__
            and not name.startswith("_")
            and _makes_tools(value)
            and not any(isinstance(each, value) for each in values)
        ):
            yield name


def _makes_tools(value: type) -> bool:
    """Whether objects of a class are tools or toolsets; those of a base class without `run` are not."""
    if inspect.isabstract(value):
        return False
    if issubclass(value, Toolset):
        return True
    return issubclass(value, BaseTool) and callable(getattr(value, "run", None))


def _class_error(name: str, of: type, path: str) -> ConfigError:
    variable = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    arguments = "..." if _needs_arguments(of) else ""
    return ConfigError(
        f"`{name}` is a class of tools; make one at module level: {variable} = {name}({arguments}) ({path})"
    )


def _needs_arguments(of: type) -> bool:
    """Whether a class cannot be instantiated without arguments."""
    try:
        inspect.signature(of).bind()
    except TypeError:
        return True
    except ValueError:  # it has no signature that can be read
        return False
    return False


def _attribute_tools(module: ModuleType, path: str, attribute: str) -> Toolset:
    if not hasattr(module, attribute):
        raise ConfigError(f"{path} has no {attribute!r}; {_hint(module)}")
    value = getattr(module, attribute)
    if isinstance(value, type) and issubclass(value, BaseTool | Toolset):
        raise _class_error(attribute, value, path)
    if isinstance(value, Toolset):
        return value
    return Toolset(value if isinstance(value, Sequence) else [value])


def _hint(module: ModuleType) -> str:
    """Describe what the module has, for someone who expected tools."""
    values = vars(module)
    tools = [name for name in values if any(True for _ in _iter_tools(values[name]))]
    if tools:
        return f"it has {', '.join(tools)}"
    lists = [name for name, value in values.items() if _is_tool_list(value)]
    if lists:
        return f"{lists[0]} is a list: make it a hr.Toolset({lists[0]}), or name it after a colon"
    functions = [name for name in values if _is_own_function(module, name)]
    if functions:
        names = ", ".join(functions[:5])
        return f"decorate what the model may call with @tool ({names}), or name one after a colon"
    submodules = [each.name for each in iter_modules(getattr(module, "__path__", ()))]
    public = [name for name in submodules if not name.startswith("_")]
    if public:
        return f"name one of its modules with it: {', '.join(public)}"
    return "decorate functions with @tool, or put a Toolset at its top level"


def _is_tool_list(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(each, BaseTool) for each in value)
    )


def _is_own_function(module: ModuleType, name: str) -> bool:
    value = getattr(module, name)
    is_own = inspect.isfunction(value) and value.__module__ == module.__name__
    return is_own and not name.startswith("_")


# ---------------------------------------------------------------------- importing what a user wrote


def file_at(place: str | Path) -> Path:
    """Return the path of an existing file of any readable kind, a pipe included.

    Raises:
        ConfigError: There is no such file, or it is a directory.
    """
    path = Path(place)
    if path.is_dir():
        raise ConfigError(f"{place} is a directory; name a file")
    if not path.exists():
        raise ConfigError(f"there is no file {place}")
    return path


def _module(path: str) -> ModuleType:
    if path.endswith((".json", ".yaml", ".yml")):
        raise ConfigError(
            f"{path} is not a Python file; name an OpenAPI document as {OPENAPI}{path}"
        )
    is_file = _names_file(path)
    if is_file:
        load = partial(_from_file, file_at(path))
    else:
        load = partial(_from_path, path)
    try:
        with redirect_stdout(sys.stderr):
            return load()
    except HandrailError:
        raise
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename or path}, line {error.lineno}: {error.msg}"
        ) from error
    except ModuleNotFoundError as error:
        if not is_file and f"{path}.".startswith(f"{error.name}."):
            missing = f"no module {error.name}, and no file of that name; the name of a file ends in .py"
            raise ConfigError(missing) from error
        raise ConfigError(
            f"{path} cannot be imported: no module {error.name} ({_line(error)})"
        ) from error
    except (Exception, SystemExit) as error:
        # a user's file may raise anything while it is imported
        raise ConfigError(
            f"{path} cannot be imported: {type(error).__name__}: {error} ({_line(error)})"
        ) from error


def _names_file(path: str) -> bool:
    """Return whether a path names a file, not a module; `.` and `..` do."""
    return path.endswith(".py") or "/" in path or "\\" in path or not path.strip(".")


def _from_file(path: Path) -> ModuleType:
    """Import a file as `python FILE` would find what it imports itself."""
    folder = str(path.resolve().parent)
    name = path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # A name of its own, so that a file called like an installed module does not shadow it.
    spec = util.spec_from_file_location(f"handrail_tools_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # type hints are looked up there
    spec.loader.exec_module(module)
    return module


def _from_path(name: str) -> ModuleType:
    """Import a module by its name; nothing is executed for the name of what is no Python.

    Raises:
        ConfigError: It names a file of another kind, or a part of a module that has none.
    """
    if Path(name).is_file():
        raise ConfigError(f"{name} is not a Python file; a file of tools ends in .py")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    first, dot, _ = name.partition(".")
    spec = util.find_spec(first) if dot and first else None
    if spec is not None and spec.submodule_search_locations is None:
        raise ConfigError(
            f"no module {name}: {first} is a file of its own, {spec.origin}; name an attribute of it "
            f"after a colon, as in {first}:tools"
        )
    return import_module(name)


def _line(error: BaseException) -> str:
    """Return the file and line of the user's own code where an import failed."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename
    ]
    if frames:
        return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}"
    return "at import"
