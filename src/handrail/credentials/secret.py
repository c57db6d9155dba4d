"""A secret value that is read from a place and shown by nothing.

    runtime = hr.Runtime(tools, secrets=[hr.Secret("env:STRIPE_KEY")])
    await runtime.call("refund", {...}, inject={"stripe_key": hr.Secret("file:/run/secrets/stripe")})

Rule 1: the value is in no `repr`, no text and no JSON of a `Secret`; `reveal` alone gives it.
Rule 2: a secret that cannot be read is an error when the program starts, and the error does not hold it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Any

from handrail import plugins
from handrail.errors import ConfigError
from handrail.logs import log

HIDDEN = "***"
"""What is shown in place of a secret."""
LEAST_CHARS = 6
"""A shorter value is no secret that could be found in a text without blackening half of it."""


class Secret:
    """A secret value, read from its place when the object is made.

    Given in `inject` or in `Runtime(secrets=[...])`, it is hidden from models, events, the journal, the audit log and
    logs, also in its encoded forms. A tool gets its text, or the `Secret` itself for a parameter that is declared as
    `Annotated[hr.Secret, hr.Injected]`.

    Args:
        place: `env:NAME`, a variable of the environment; `file:PATH`, a file, without the line end behind the value; or
            `KIND:NAME` for what a plug-in reads, such as a keyring: an entry point `KIND` of the group
            `handrail.credentials`, which names a function from NAME to the value.

    Raises:
        ConfigError: There is nothing at that place, or no such kind of place.
    """

    __slots__ = ("_text", "place")

    place: str

    def __init__(self, place: str) -> None:
        kind, colon, name = place.partition(":")
        if not (colon and name):
            # a value that was given in place of a place must not get into the error
            raise ConfigError(
                "a secret is named by its place, such as env:STRIPE_KEY or file:/run/secrets/stripe; "
                "for a value that you have, use Secret.of(value)"
            )
        read: Callable[[str], Any] = _READERS.get(kind) or plugins.load(
            "credentials", kind
        )
        self._set(place, read(name))

    @classmethod
    def of(cls, value: str, name: str = "given") -> Secret:
        """Return a secret whose value the program has already.

        Args:
            name: What it is called where it is shown.

        Raises:
            ConfigError: It is empty, or no text.
        """
        secret = cls.__new__(cls)
        secret._set(name, value)
        return secret

    def _set(self, place: str, text: Any) -> None:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"the secret at {place} is empty, or no text")
        if len(text) < LEAST_CHARS:
            log.warning(
                "the secret at %s is shorter than %d characters, too short to be found in texts and hidden there",
                place,
                LEAST_CHARS,
            )
        self.place = place
        self._text = text

    def reveal(self) -> str:
        """Return the value."""
        return self._text

    def get_secret_value(self) -> str:
        """Return the value, by the name that pydantic's secrets have for this."""
        return self._text

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, _: str) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return f"<Secret {self.place}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(("Secret", self._text))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _: Any) -> Secret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the value, for the process of a tool; do not pickle to a place where others read."""
        return Secret.of, (self._text, self.place)


def reveal_all(values: Mapping[str, Any], kept: Iterable[str] = ()) -> dict[str, Any]:
    """Return injected values, each secret replaced by its text; parameters named in `kept` get the `Secret` itself."""
    hidden = frozenset(kept)
    return {
        name: value.reveal()
        if isinstance(value, Secret) and name not in hidden
        else value
        for name, value in values.items()
    }


def _read_variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(
            f"the variable {name}, which should hold a secret, is not set"
        )
    return value


def _read_file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError(
            f"{name}, which should hold a secret, cannot be read: {why}"
        ) from None
    if sys.platform != "win32" and mode & (stat.S_IROTH | stat.S_IWOTH):
        log.warning(
            "every user of this machine can read %s, which holds a secret", name
        )
    return text.removesuffix("\n").removesuffix("\r")


_READERS: Mapping[str, Callable[[str], str]] = {
    "env": _read_variable,
    "file": _read_file,
}
