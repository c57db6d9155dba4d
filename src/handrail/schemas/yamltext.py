"""YAML as what JSON can hold: an OpenAPI document in YAML means what it means in JSON. Needs `handrail[openapi]`.

The specification asks for that (OpenAPI 3.1, section 4.3): tags of YAML's JSON schema only, and text as keys. So `no`
and `2026-11-21` are text, `010` is ten, and the key `200` is text. `<<` still merges: documents in use rely on it.

Rule 1: a document is data: no tag makes an object of it.
Rule 2: what aliases make of a few lines is bounded before anybody walks through it.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, ClassVar

from handrail.errors import ConfigError, Json, describe_install

MOST_VALUES = 2_000_000
"""Values of a document once its aliases are written out: a few seconds of reading."""

MOST_DEPTH = 200

_KINDS = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
)
"""Plain words that are no text (YAML 1.2.2, 10.3.2), each with the characters that it may begin with."""


def loads(text: str) -> Json:
    """Read one YAML document.

    Raises:
        ConfigError: It is no YAML, holds what JSON cannot, or grows too large by its aliases; or PyYAML is missing.
    """
    try:
        import yaml  # type: ignore[import-untyped, import-not-found, unused-ignore]  # optional
    except ImportError:
        raise ConfigError(
            f"it is YAML, which needs PyYAML: {describe_install('openapi')}, or convert it to JSON"
        ) from None
    try:
        _check_depth(yaml, text)
        return _Plain().value(yaml.load(text, _loader(yaml)), 0)
    except yaml.YAMLError as error:
        raise ConfigError(f"it is no YAML: {' '.join(str(error).split())}") from error
    except (ValueError, LookupError, AttributeError) as error:
        # PyYAML's, of a tag such as `!!timestamp soon`
        raise ConfigError(
            f"a value of it cannot be read: {type(error).__name__}: {str(error)[:200]}"
        ) from error


def _check_depth(yaml: Any, text: str) -> None:
    """Refuse what is nested too deep: the quick loader goes down by recursion in C, where the process would crash."""
    depth = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > MOST_DEPTH:
            raise ConfigError(f"it is nested deeper than {MOST_DEPTH} levels")


def _loader(yaml: Any) -> Any:
    """Return PyYAML's safe loader, the quick one where it is there, with the words of YAML 1.2."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # PyYAML has no types
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
        yaml_constructors: ClassVar[dict[str, Any]] = {
            **yaml.SafeLoader.yaml_constructors,
            "tag:yaml.org,2002:int": lambda loader, node: int(
                loader.construct_scalar(node)
            ),
            "tag:yaml.org,2002:float": lambda loader, node: float(
                loader.construct_scalar(node)
            ),
        }
        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            """Put in what `<<` names; each merge may hold ten that hold ten, so it is counted as it grows."""
            super().flatten_mapping(node)
            self.merged += len(node.value)
            if self.merged > MOST_VALUES:
                raise ConfigError(
                    f"its merges make more than {MOST_VALUES:,} values of it"
                )

    for kind, words, begins in _KINDS:
        firsts = ["" if each == "\0" else each for each in begins]
        Loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{words})$"), firsts
        )
    return Loader


class _Plain:
    """Writes a tree out, aliases and all, as far as JSON can hold it."""

    def __init__(self) -> None:
        self._values = 0

    def value(self, item: Any, depth: int) -> Json:
        """Return a value as JSON has it."""
        self._values += 1
        if self._values > MOST_VALUES or depth > MOST_DEPTH:
            if depth <= MOST_DEPTH:
                excess = f"more than {MOST_VALUES:,} values"
            else:
                excess = f"more than {MOST_DEPTH} levels"
            raise ConfigError(f"its aliases make {excess} of it")
        match item:
            case dict():
                return {
                    _key(name): self.value(each, depth + 1)
                    for name, each in item.items()
                }
            case list():
                return [self.value(each, depth + 1) for each in item]
            case float() if not isfinite(item):
                raise ConfigError("it holds a number that is too large")
            case str() | bool() | int() | float() | None:
                return item
        raise ConfigError(f"it holds a {type(item).__name__}, which JSON does not have")


def _key(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bool) or name is None:
        return {True: "true", False: "false", None: "null"}[name]
    return str(name)
