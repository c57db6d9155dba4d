"""Secrets taken out of what is stored or shown: logs, audit, spans, the wire view.

Known secrets are found exactly, also as base64 and URL encoding spell them; unknown ones by what keys look like, and
by the name before them, of a field or in a text. Invisible letters and wider forms of letters do not hide a secret.

Rule 1: what is taken out is replaced by `***`, so that a reader sees that something was there.
Rule 2: a short value (under 6 characters) is no secret that could be found without blackening half of a text.
Rule 3: the time is linear in the length of the text. A pattern with something after a repeat bounds the repeat or
        matches it possessively, so that no character is scanned again from every earlier position.
"""

from __future__ import annotations

import base64
import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from msgspec.structs import replace

from handrail.calls import Media
from handrail.core.results import as_text, media_in, plain
from handrail.errors import Failure, Json
from handrail.invisible import UNSEEN, is_unseen

_compiled = cache(re.compile)
"""Patterns are compiled at first use: without an audit log they are never needed."""

HIDDEN = "***"
_LEAST_CHARS = 6

_NO_TEXT = frozenset((int, float, bool, type(None)))
_MOST_NAMES = 4096
_LONGEST_NAME = 64

_SECRET_NAMES = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|(?:api|access|account|private|secret|signing|encryption)[_-]?key"
    r"|credential|authorization|cookie|session[_-]?id|密码|口令|密钥|令牌"
)
_FIELD = rf"(?i)(?:^|[_\-.])(?:{_SECRET_NAMES})s?$"
"""Names of fields whose value is a secret, whatever it looks like."""

_COUNTED = (
    "max",
    "min",
    "input",
    "output",
    "total",
    "prompt",
    "completion",
    "cached",
    "reasoning",
)
_COUNT_OF_TOKENS = rf"(?i)(?:{'|'.join(_COUNTED)})[_-]?tokens?$"
"""Fields of that name hold a count."""
_NO_COUNT = "".join(
    f"(?<!{word}{joint}token)" for word in _COUNTED for joint in ("", "_", "-")
)
"""After `token`: it is not that of a count."""
_NAMES_BEFORE_SECRETS = _SECRET_NAMES.replace("|token|", f"|token{_NO_COUNT}|")

_CERTAIN_KINDS = (
    r"\b((?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,})",  # Stripe
    r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    r"\b(gl(?:pat|dt|rt|ptt|cbt|soat|ft|imt|agent|oas)-[A-Za-z0-9_\-]{20,})",  # GitLab
    r"\b(npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_\-]{30,}|dckr_pat_[A-Za-z0-9_\-]{20,})",
    # Hugging Face, Groq, Tavily
    r"\b((?:hf|gsk)_[A-Za-z0-9]{30,}|(?:xai|nvapi|pplx|tvly)-[A-Za-z0-9_\-]{16,})",
    r"\b(xox[abeoprs]-[A-Za-z0-9\-]{10,})",  # Slack
    r"(?<=hooks\.slack\.com/)((?:services|workflows|triggers)/[A-Za-z0-9/_\-]{20,})",
    # Google
    r"\b(AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-]{16,}|GOCSPX-[A-Za-z0-9_\-]{20,})",
    r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b",  # AWS
    r"\b(SG\.[A-Za-z0-9_\-]{16,64}\.[A-Za-z0-9_\-]{16,})",  # SendGrid
    # a JWT
    r"\b(?:(eyJ[A-Za-z0-9_\-]{8,}+\.eyJ[A-Za-z0-9_\-]{8,}+\.[A-Za-z0-9_\-]*)|eyJ[A-Za-z0-9_\-]{8,}+)",
    # user and password in an address, and not how such an address is described
    r"(?<=://)(?![^/\s:@]{0,200}:(?i:pass(?:word|wd)?|pwd|secret|\*{1,9})@)([^/\s:@]{0,200}:[^/\s@]{1,200})(?=@)",
)
"""What keys look like. The group is redacted; a match without a group only skips text that is no key."""

_KINDS = (
    # OpenAI, Anthropic, and those who copy them
    r"\b((?:sk|pk|rk)-[A-Za-z0-9_\-]{16,})",
    *_CERTAIN_KINDS,
    r"\b[Bb]earer ([A-Za-z0-9._~+/\-]{8,}=*)",
)
"""Kinds of keys for a log, which loses nothing where a word of prose is taken for one."""

_FOREIGN_KINDS = (
    # with 16 letters on end, which the words of an address (`sk-learn-in-ten-minutes`) do not have
    r"(?<![A-Za-z0-9_\-])((?:sk|pk|rk)-(?=(?:[A-Za-z0-9_]{0,15}-){0,8}[A-Za-z0-9_]{16})[A-Za-z0-9_\-]{16,})",
    *_CERTAIN_KINDS,
)
"""Kinds of keys for a text that a model reads, which must not lose a word of prose."""

_AWS_ID = r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
_AWS_SECRET = r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
"""Looked for beside an id only: a digest has 40 letters too."""

_MARKS = (
    r"-(?:(?=----BEGIN )|(?=[\w\-]{10})(?:(?<=\b[spr]k-)|(?<=gl[a-z][a-z]-)|(?<=gl[a-z]{3}-)|(?<=gl[a-z]{4}-)"
    r"|(?<=agent-)|(?<=pypi-)|(?<=xai-)|(?<=nvapi-)|(?<=pplx-)|(?<=tvly-)|(?<=xox[abeoprs]-)|(?<=GOCSPX-)))"
    r"|_(?=[\w\-]{10})(?:(?<=\b[spr]k_)|(?<=gh[pousr]_)|(?<=_pat_)|(?<=npm_)|(?<=\bhf_)|(?<=gsk_))"
    r"|\.(?:(?<=hooks\.)|(?<=ya29\.)|(?<=SG\.))|:(?=//[^/\s:@]{0,200}:[^/\s@]{1,200}@)|A(?:Iza|KIA|SIA)|J(?<=eyJ)"
)
"""Found in every text with such a key, except for `Bearer`. Every text of a run is searched for it, and most have none;
so each alternative begins with a rare letter, and looks ahead before it looks back."""

_QUOTED = r"(?:\"(?:[^\"\\]|\\.)*+\"?+|'(?:[^'\\]|\\.)*+'?+|\\{1,4}[\"'][^\"'\\]++(?:\\{1,4}[\"'])?+)"
_NAMED = (
    # Its name, and what joins it. That of a count is no match, since what follows in quotes would be passed over.
    rf"(?s)({_NAMES_BEFORE_SECRETS})s?(\\{{0,4}}[\"'])?\s{{0,4}}(?:=>|[:=：＝]){{1,2}}\s{{0,4}}"
    r"(?:(?:basic|bearer|token|apikey|negotiate)\s{1,4})?"
    # in quotes, which may be escaped
    r"(?:\"((?:[^\"\\]|\\.)++)|'((?:[^'\\]|\\.)++)|\\{1,4}[\"']([^\"'\\]++)"
    # several, up to the end of the list or of the text
    rf"|\[\s*+((?:{_QUOTED}(?:\s*+,)?+\s*+)++)"
    r"|(?![{\[(<]\s{0,4}[\"'\\{}()\[\]])([^\s\"'&;\\](?:[^\s\"'&;\\]|\\(?![\"'nrtu]))*+))"
)
_WORDS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "authorization",
    "cookie",
    "session",
)
_CHINESE_WORDS = ("密码", "口令", "密钥", "令牌")
"""Every name of a secret contains one of these."""
_COOKIE = r"cookie\s{0,4}:\s{0,4}([\w.\-]{1,200}=[^\r\n\"']*+)"

_UNUSUAL = r"[^\x00-\x7f\u00c0-\u024f\u2010-\u2027\u3001-\u30ff\u4e00-\u9fff\uff01-\uff0f\uff1a-\uff20]"
"""No letter or sign of Latin writing, Chinese or Japanese: texts with these alone hide nothing."""
_DISGUISED = rf"[{UNSEEN}\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff]"
"""Invisible letters, and wide and slanted forms of plain ones."""


class KnownSecrets:
    """Redacts known secrets, such as injected keys, in their own and in encoded spellings, and nothing else.

    Args:
        secrets: Those shorter than 6 characters are ignored.
    """

    __slots__ = ("_beginnings", "forms")

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= _LEAST_CHARS
            for form in _forms(secret)
        }
        # the longest first: one secret may begin with another
        self.forms = sorted(forms, key=len, reverse=True)
        self._beginnings = frozenset(form[0] for form in forms)

    def text(self, text: str) -> str:
        """Return the text without them."""
        for form in self.forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text

    def replace(self, text: str, stand_in: Callable[[str], str]) -> str:
        """Return the text with a stand-in for each of them."""
        for form in self.forms:
            if form in text:
                text = text.replace(form, stand_in(form))
        return text

    def key(self, key: str) -> str:
        """Return the key of a write without them: a template escapes signs of its values by percent."""
        if "%" in key:
            unescaped = unquote(key)
            shown = self.text(unescaped)
            if shown != unescaped:
                return shown
        return self.text(key)

    def certain_length(self, text: str) -> int:
        """Return how much of the beginning of a stream can be redacted whatever comes next.

        The rest may be the beginning of a secret, or a secret that may belong to a longer one.
        """
        certain = self._beginning_of_last(text)
        for begin, end in sorted(self.spans(text)):
            if begin < certain < end:
                certain = begin
        return certain

    def _beginning_of_last(self, text: str) -> int:
        """Return where a secret may begin that the text does not hold to its end."""
        longest = len(self.forms[0]) if self.forms else 0
        for place in range(max(0, len(text) - longest + 1), len(text)):
            if text[place] in self._beginnings:
                rest = text[place:]
                if any(
                    len(form) > len(rest) and form.startswith(rest)
                    for form in self.forms
                ):
                    return place
        return len(text)

    def value(self, value: Any) -> Any:
        """Return a tool's value without them: the same object if it contains none, else JSON with its media."""
        if isinstance(value, str):
            return self.text(value)
        text = as_text(value)
        if self.text(text) == text:
            return value
        if not media_in(value):
            return self._json(plain(value))
        if isinstance(value, dict):
            return {
                self.text(str(name)): self._beside_media(part)
                for name, part in value.items()
            }
        return [self._beside_media(part) for part in value]

    def failure(self, failure: Failure) -> Failure:
        """Return a failure without them."""
        message = self.text(failure.message)
        suggestion = self.text(failure.suggestion)
        return replace(
            failure,
            message=message,
            suggestion=suggestion,
            details=self._json(failure.details),
        )

    def _beside_media(self, part: Any) -> Any:
        if isinstance(part, Media):
            return part
        return self.value(part)

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): self._json(part) for name, part in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._json(part) for part in value]
        return value

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where in a text they are."""
        for form in self.forms:
            place = text.find(form)
            while place >= 0:
                yield place, place + len(form)
                place = text.find(form, place + len(form))


NO_SECRETS = KnownSecrets(())


class ForeignSecrets(KnownSecrets):
    """Redacts what is known, and keys that are recognised by their form: for what others wrote and a model reads."""

    __slots__ = ()

    def __init__(self, known: KnownSecrets) -> None:
        self.forms = known.forms
        self._beginnings = known._beginnings

    def text(self, text: str) -> str:
        """Return the text without them."""
        if _compiled(_MARKS).search(text) is not None:
            spans = list(_foreign_spans(text))
            if spans:
                text = _without(text, spans)
        return super().text(text) if self.forms else text

    def value(self, value: Any) -> Any:
        """Return a tool's value without them, see `KnownSecrets.value`."""
        if not isinstance(value, str):
            text = as_text(value)
            if self.text(text) == text:
                return value
            if beside := _aws_secrets_in(text):
                # its id may stand in another field
                value = KnownSecrets(beside).value(value)
        return super().value(value)


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in an injected value, also in lists, mappings, bytes and pydantic's secret types."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from texts_in(part)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif hasattr(type(value), "get_secret_value"):  # as pydantic's SecretStr
        yield from texts_in(value.get_secret_value())


def without_aws_secrets(value: Json) -> Json:
    """Return a JSON value without secrets of AWS, where it has the id of one, perhaps in another field."""
    if not _names_aws(value):
        return value
    beside = _aws_secrets_in("\n".join(texts_in(value)))
    return KnownSecrets(beside).value(value) if beside else value


def _names_aws(value: Json) -> bool:
    """Whether a text in a JSON value may hold an id of AWS."""
    if isinstance(value, str):
        return _may_hold_aws_id(value)
    if type(value) in _NO_TEXT:
        return False
    if isinstance(value, Mapping):
        return any(map(_names_aws, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_names_aws, value))


class Redactor:
    """Takes secrets out of texts and JSON values.

    Args:
        secrets: Known secrets: injected keys, passwords.
    """

    def __init__(self, secrets: Iterable[str] | KnownSecrets = ()) -> None:
        if not isinstance(secrets, KnownSecrets):
            secrets = KnownSecrets(secrets)
        self._secrets = secrets if secrets.forms else None
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._secrets is not None:
            text = self._secrets.text(text)
        if (
            text.isascii()
            or _compiled(_UNUSUAL).search(text) is None  # a third of the next one
            or _compiled(_DISGUISED).search(text) is None
        ):
            spans = _key_spans(text)
            if not spans:
                return text
            return _without(text, spans)
        bare, places = _undisguise(text)
        bare_spans = _key_spans(bare)
        if self._secrets is not None:
            bare_spans += self._secrets.spans(bare)
        # The original text, too: in the plain form a wide quote inside a secret would end it.
        spans = _key_spans(text)
        spans += [(places[begin], places[end - 1] + 1) for begin, end in bare_spans]
        return _without(text, spans)

    def key(self, key: str) -> str:
        """Return the key of a write without secrets."""
        if self._secrets is not None:
            key = self._secrets.key(key)
        return self.text(key)

    def value(self, value: Json, text: Callable[[str], str] | None = None) -> Json:
        """Return a JSON value without secrets, in its texts, its names and under names that speak of one.

        Args:
            text: Redacts its texts, instead of `Redactor.text`.
        """
        text = text or self.text
        if isinstance(value, str):
            return text(value)
        return self._value(without_aws_secrets(value), text)

    def _value(self, value: Json, text: Callable[[str], str]) -> Json:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, Mapping):
            names = self._names  # a few, which are in nearly all values
            return {
                names.get(name) or self._name(str(name), text): self._under(
                    str(name), part, text
                )
                for name, part in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._value(part, text) for part in value]
        return value

    def _under(self, name: str, part: Json, text: Callable[[str], str]) -> Json:
        """Return the value under a name: `***` if the name speaks of a secret, else without the secrets in it."""
        if is_secret_name(name[-_LONGEST_NAME:]) and part not in (None, ""):
            return HIDDEN
        if type(part) is str:
            return text(part)
        if type(part) in _NO_TEXT:
            return part
        return self._value(part, text)

    def name(self, name: str) -> str:
        """Return the name of a field or tool."""
        return self._names.get(name) or self._name(name, self.text)

    def _name(self, name: str, text: Callable[[str], str]) -> str:
        if len(name) > _LONGEST_NAME:
            return text(name)
        shown = self._names.get(name)
        if shown is None:
            shown = self.text(name)
            if len(self._names) < _MOST_NAMES:
                self._names[name] = shown
        return shown


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of a field of that name is a secret, whatever it looks like."""
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return bool(_compiled(_FIELD).search(spelled)) and not _compiled(
        _COUNT_OF_TOKENS
    ).search(spelled)


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with `***` in place of these spans, which may overlap."""
    parts: list[str] = []
    end = 0
    for begin, stop in sorted(spans):
        if begin >= end:
            parts += text[end:begin], HIDDEN
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _key_spans(text: str) -> list[tuple[int, int]]:
    """Return where in the text something looks like a key."""
    if len(text) < _LEAST_CHARS - 1:  # `pwd=x`
        return []
    spans: list[tuple[int, int]] = []
    if _compiled(_MARKS).search(text) is not None or "earer " in text:
        spans += _spans_by_kind(text)
    if ":" in text or "=" in text or "：" in text or "＝" in text:
        # of the same length: one letter of all, the dotted capital I, becomes two
        small = text.lower()
        if len(small) != len(text):
            small = text.replace("\u0130", "I").lower()
        if _names_a_secret(small):
            spans += _spans_by_name(small)
    return spans


def _spans_by_kind(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of keys that are recognised by their own form."""
    yield from _private_keys(text)
    yield from _spans_of(_KINDS, text)


def _foreign_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of keys that are certainly such. A page that names the first line of a private key has none."""
    for begin, end in _private_keys(text):
        if _compiled(_KEY_BODY).search(text, begin, end) is not None:
            yield begin, end
    yield from _spans_of(_FOREIGN_KINDS, text)


def _spans_of(kinds: Sequence[str], text: str) -> Iterator[tuple[int, int]]:
    for kind in kinds:
        for match in _compiled(kind).finditer(text):
            if match.lastindex:
                yield match.span(1)
    yield from _aws_spans(text)


def _aws_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of AWS secrets, in a text that has the id of one."""
    if not _may_hold_aws_id(text):
        return
    if _compiled(_AWS_ID).search(text) is None:
        return
    for match in _compiled(_AWS_SECRET).finditer(text):
        kinds = (str.isupper, str.islower, str.isdigit)
        if all(any(map(is_kind, match[0])) for is_kind in kinds):
            yield match.span()


def _may_hold_aws_id(text: str) -> bool:
    return "AKIA" in text or "ASIA" in text


def _aws_secrets_in(text: str) -> list[str]:
    return [text[begin:end] for begin, end in _aws_spans(text)]


def _spans_by_name(small: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of values that follow the name of a secret, in a text without capitals."""
    for match in _compiled(_NAMED).finditer(small):
        if _is_value(match, small):
            yield match.span(match.lastindex or 0)
    for match in _compiled(_COOKIE).finditer(small):
        yield match.span(1)


def _names_a_secret(small: str) -> bool:
    for word in _WORDS:  # `any` with a generator costs twice as much
        if word in small:
            return True
    return not small.isascii() and any(map(small.__contains__, _CHINESE_WORDS))


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of private keys, from BEGIN to END; without END, as far as the letters of a key go."""
    begin = 0
    ends = True
    while (begins := _compiled(_KEY_BEGINS).search(text, begin)) is not None:
        end = _compiled(_KEY_ENDS).search(text, begins.end()) if ends else None
        # or it would be looked for behind each of them, to the end of the text
        ends = end is not None
        if end is None:
            end = _compiled(_KEY_LETTERS).match(text, begins.end())
            # the pattern matches no letter as well
            assert end is not None
        begin = end.end()
        yield begins.start(), begin


_KEY_BEGINS = "-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
_KEY_ENDS = "-----END [A-Z ]{0,40}PRIVATE KEY-----"
_KEY_BODY = r"[A-Za-z0-9+/]{40}"
_KEY_LETTERS = r"(?:[A-Za-z0-9+/=\s]|\\[nr])*+"


def _is_value(match: re.Match[str], text: str) -> bool:
    """Whether the value after the name of a secret is a secret, and not prose or a name."""
    name = match[1]
    group = match.lastindex or 0
    if group < _BARE:
        return True
    value = match[group]
    if name.startswith(("pass", "pwd", "密码", "口令")):
        return (
            len(value) >= _LEAST_CHARS
            or match[2] is not None
            or "=" in text[match.end(1) : match.start(group)]
        )
    return len(value) >= _LEAST_CHARS and not value.isalpha() and not value.isdigit()


_BARE = 7
"""The group of a value without quotes."""


def _undisguise(text: str) -> tuple[str, list[int]]:
    """Return the text without invisible letters and with the others in plain form, and the original place of each."""
    plain = []
    places = []
    for place, char in enumerate(text):
        if char.isascii():
            plain.append(char)
            places.append(place)
        elif not is_unseen(char):
            same = unicodedata.normalize("NFKC", char)
            plain.append(same if len(same) == 1 else char)
            places.append(place)
    return "".join(plain), places


def _forms(secret: str) -> set[str]:
    """Return how a secret may be spelled where it went through somebody's hands.

    In base64 a text has three spellings, by where it begins; what depends on its neighbours is left off.
    """
    raw = secret.encode("utf-8", "surrogatepass")
    quoted = quote(raw, safe="")
    escaped = _json_forms(secret)
    forms = {
        secret,
        quoted,
        quote(raw),
        quote_plus(raw),
        _in_small(quoted),
        raw.hex(),
        raw.hex().upper(),
        html.escape(secret),
        # a call's arguments are text with JSON in it, and stand in JSON on the wire
        *escaped,
        *(form for each in escaped for form in _json_forms(each)),
    }
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        inner = encoded[(0, 2, 3)[shift] : -1]
        forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= _LEAST_CHARS}


def _json_forms(text: str) -> set[str]:
    """Return a text as JSON writes it in ASCII, and otherwise."""
    return {json.dumps(text, ensure_ascii=each)[1:-1] for each in (True, False)}


def _in_small(quoted: str) -> str:
    """Return URL-encoded text with its escapes in small letters, as some encoders write them."""
    return re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), quoted)
