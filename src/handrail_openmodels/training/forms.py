"""The forms of training data, by name: how each is written and read.

    openai      `messages` in the chat form, arguments as text, `weight`; OpenAI's fine-tuning
    hermes      `conversations` with <tool_call> tags; the Hermes models
    preference  `prompt`, `chosen`, `rejected`; TRL's DPOTrainer

Rule 1: a row reads back to the same calls and results. An export leaves out what would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from handrail.errors import ConfigError, Json
from handrail_openmodels.training import chat_rows, hermes_rows
from handrail_openmodels.training.examples import Example, Pair


class Form(Struct, frozen=True):
    """How examples are written as rows and read from them.

    Attributes:
        has_weights: Whether a row can say which answers are not to be learnt.
    """

    write: Callable[[Example], dict[str, Json]]
    read: Callable[[Mapping[str, Any]], Example]
    has_weights: bool = False


FORMS: Final[Mapping[str, Form]] = {
    "openai": Form(chat_rows.write_openai, chat_rows.read_openai, has_weights=True),
    "hermes": Form(hermes_rows.write_hermes, hermes_rows.read_hermes),
}
"""Every form of conversations; `preference` holds pairs."""

PREFERENCE: Final = "preference"
NAMES: Final = (*FORMS, PREFERENCE)


def write_row(form: str, example: Example) -> dict[str, Json]:
    """Return an example as a row of that form.

    Raises:
        ConfigError: There is no such form, or it cannot hold the example.
    """
    try:
        return _form(form).write(example)
    except ValueError as error:
        raise ConfigError(f"{form} cannot hold this example: {error}") from error


def read_row(form: str, row: Mapping[str, Any]) -> Example:
    """Return the example that a row of that form holds.

    Raises:
        ConfigError: There is no such form, or the row does not fit it.
    """
    reader = _form(form).read
    try:
        return reader(row)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _misshapen(form, error) from error


def write_pair(pair: Pair) -> dict[str, Json]:
    """Return a pair as a row of `preference`.

    Raises:
        ConfigError: The form cannot hold it.
    """
    try:
        return chat_rows.write_preference(pair)
    except ValueError as error:
        raise ConfigError(f"{PREFERENCE} cannot hold this pair: {error}") from error


def read_pair(row: Mapping[str, Any]) -> Pair:
    """Return the pair that a row of `preference` holds.

    Raises:
        ConfigError: The row does not fit that form.
    """
    try:
        return chat_rows.read_preference(row)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _misshapen(PREFERENCE, error) from error


def _form(name: str) -> Form:
    form = FORMS.get(name)
    if form is None:
        raise ConfigError(
            f"there is no form {name!r} of examples; the forms are {', '.join(FORMS)}"
        )
    return form


def _misshapen(form: str, error: Exception) -> ConfigError:
    return ConfigError(f"this row does not fit the form {form}: {error!r}")
