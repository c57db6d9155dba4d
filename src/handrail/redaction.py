"""Secrets taken out of what is kept or shown: logs, audit, spans, the wire view.

Known secrets are found exactly, also as base64 and URL encoding spell them; unknown ones by what keys look like, and
by the name of the field that holds them.

Rule 1: what is taken out is replaced by `***`, so that a reader sees that something was there.
Rule 2: a short value (under 6 characters) is no secret that could be found without blackening half of a text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

from handrail.errors import Json

HIDDEN = "***"
_LEAST_CHARS = 6

_NO_TEXT = frozenset((int, float, bool, type(None)))
_MOST_NAMES, _LONGEST_NAME = 4096, 64

_NAMES = re.compile(
    r"(?i)(?:^|[_\-.])(?:password|passwd|passphrase|secret|token|api[_-]?key|apikey|private[_-]?key|credential|authorization"
    r"|cookie|session[_-]?id)s?$"
)
"""Names of fields whose value is a secret, whatever it looks like."""

_NUMBERS_OF_TOKENS = re.compile(r"(?i)(?:max|min|input|output|total|prompt|completion|cached|reasoning)[_-]?tokens?$")
"""Fields of that name hold a count."""

_KINDS = (
    (("sk-", "pk-", "rk-"), r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}"),  # OpenAI, Anthropic, and those who copy them
    (("sk_", "rk_", "pk_"), r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}"),  # Stripe
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{30,}"),
    (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
    (("xox",), r"\bxox[abeoprs]-[A-Za-z0-9\-]{10,}"),  # Slack
    (("AIza",), r"\bAIza[A-Za-z0-9_\-]{30,}"),  # Google
    (("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),  # AWS
    (("eyJ",), r"\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"),  # a JSON Web Token
    (("-----BEGIN ",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{0,8000}?-----END [A-Z ]*PRIVATE KEY-----"),
    (("://",), r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)"),  # user and password in an address
    (("earer ",), r"(?<=\b[Bb]earer )[A-Za-z0-9._~+/\-]{8,}=*"),
    (("password=",), r"(?<=\bpassword=)[^\s&;\"']{1,200}"),
    (("pwd=",), r"(?<=\bpwd=)[^\s&;\"']{1,200}"),
)
"""What keys look like, behind words of which one stands in every text that has such a key. All that a run decides and
does passes here; looking for the words costs a twentieth, and most texts have none."""

_MARKS = tuple(mark for marks, _ in _KINDS for mark in marks)
_SHAPES = "|".join(shape for _, shape in _KINDS)  # compiled when first met


class Redactor:
    """Takes secrets out of texts and JSON values.

    Args:
        secrets: Values that are known to be secret: injected keys, passwords.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets if len(secret) >= _LEAST_CHARS for form in _forms(secret)}
        # The longest first: one secret may begin with another.
        self._known = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True)))) if known else None
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for mark in _MARKS:  # `any` with a generator costs twice as much
            if mark in text:
                return re.sub(_SHAPES, HIDDEN, text)
        return text

    def value(self, value: Json) -> Json:
        """Return a JSON value without secrets, in its texts, its names and under names that speak of one."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.name(str(name)): self._under(str(name), part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(part) for part in value]
        return value

    def _under(self, name: str, part: Json) -> Json:
        """Return what stands under a name: nothing that is a secret by it, or by itself."""
        if _is_secret(name) and part not in (None, ""):
            return HIDDEN
        return part if type(part) in _NO_TEXT else self.value(part)

    def name(self, name: str) -> str:
        """Return the name of a field or tool; few of them are in nearly all values."""
        shown = self._names.get(name)
        if shown is None:
            shown = self.text(name)
            if len(self._names) < _MOST_NAMES and len(name) <= _LONGEST_NAME:
                self._names[name] = shown
        return shown


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return bool(_NAMES.search(spelled)) and not _NUMBERS_OF_TOKENS.search(spelled)


def _forms(secret: str) -> set[str]:
    """Return how a secret may be spelled where it went through somebody's hands.

    In base64 a text has three spellings, by where it begins; what depends on its neighbours is left off.
    """
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, quote(secret, safe=""), quote_plus(secret), raw.hex()}
    for shift in range(3):
        told = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        inner = told[(0, 2, 3)[shift] : -1]
        forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= _LEAST_CHARS}
