"""What a run has read and from whom, and which of its calls a person is asked about for that.

Whoever wrote a page that a run reads may have written to its model. So a run that has read words from outside is
tainted, and a call of it that sends something is asked about unless each destination occurs in trusted words: what the
user said, what was configured, what a directory returned. Addresses within texts count as destinations. Private values
do not leave to where their source does not name, whether the run is tainted or not.

Rule 1: the state belongs to the run and not to its messages, so nothing that becomes of a message changes it. A process
        that drives the run again makes it again, from the results that the journal has.
Rule 2: a call is judged by what its author had read: the results of earlier turns, and those that it refers to.
Rule 3: an allowed call may come to be asked about, and never the other way round. In doubt, a person is asked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail._lazy import cached_property
from handrail.calls import TRUSTED, Label, ToolResult
from handrail.core.results import plain
from handrail.effects import Provenance
from handrail.errors import Json
from handrail.invisible import is_unseen
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from handrail.tools.tool import BaseTool

UNKNOWN = Label("what it read before", "untrusted")
"""The label of a run whose history this process does not know."""

HANDED_OVER = Label("the conversation that it was given", "untrusted")
"""The label of answers that came with the messages of a request. No store says what their author had read."""

_LEAST_PRIVATE_DIGITS = 6
_MOST_LISTED = 4
_MOST_SHOWN = 80
_MOST_TEXT = 64 * 1024
"""How much of one text is looked through for addresses; of a longer one a person is asked."""


class PrivateText(Struct, frozen=True):
    """What a private result holds.

    Attributes:
        text: The result as it is compared, which may name where its values may go.
        values: The words of it that are private.
    """

    source: str
    text: str
    values: frozenset[str]


class Trust(Struct, eq=False):
    """What a run has read, and from whom.

    Attributes:
        words: What the user said and what was configured; a destination may occur anywhere in it.
        entries: What directories returned, as it is compared. A destination is a whole entry: strangers may have
            written a part of one, such as the name of a channel.
        taint: The label, with its call, of the first result from outside; None in a run that has read none.
        private: What its private results hold.
        lost_private: The source of private results that this process has not seen; empty where there are none.
        inherited: What it took over from the run that started it, as JSON; None where it took over nothing.
        must_recall: Another process may have carried out calls of this run.
        joined: Labels of the runs that calls under way have started, by the place of the call.
    """

    # none of these is changed in place: most runs have nothing in them, and share it
    words: Sequence[str] = ()
    entries: frozenset[str] = frozenset()
    taint: Label | None = None
    private: Sequence[PrivateText] = ()
    lost_private: str = ""
    inherited: Mapping[str, Json] | None = None
    must_recall: bool = False
    joined: Mapping[str, Label] = {}

    @property
    def label(self) -> Label:
        """The label of the run: the join of all that it has read."""
        label = self.taint or TRUSTED
        if self.private or self.lost_private:
            return replace(label, confidentiality="private")
        return label

    def trust_words(self, texts: Iterable[str]) -> None:
        """Trust what is named in these texts, too."""
        self.words = (*self.words, *texts)

    def join_run(self, place: str, label: Label) -> None:
        """Note that the call at this place has started a run which has read words of this label."""
        joined = join_labels(self.joined.get(place, TRUSTED), label)
        self.joined = {**self.joined, place: joined}

    def take_joined(self, place: str) -> Label:
        """Return the label of the runs that the call at this place has started, and forget it."""
        label = self.joined.get(place, TRUSTED)
        self.joined = {each: self.joined[each] for each in self.joined if each != place}
        return label

    def note(self, result: ToolResult) -> None:
        """Take a result into account. Its label must be complete."""
        label = result.label
        is_outside = label.integrity == "untrusted" and _may_have_words(result)
        if is_outside and self.taint is None:
            self.taint = Label(
                label.source or result.name,
                "untrusted",
                call=label.call or result.call_id,
            )
        is_private = label.confidentiality == "private"
        if (label.is_directory or is_private) and result.ok:
            self._note_value(label, result)

    def _note_value(self, label: Label, result: ToolResult) -> None:
        if label.is_directory:
            self.entries = self.entries.union(_list_entries(result.value))
        if label.confidentiality == "private":
            self._note_private(label.source or result.name, result.value)

    def _note_private(self, source: str, value: Any) -> None:
        text = _normalize(_join_texts(value))
        values = frozenset(_find_private_words(text))
        self.private = (*self.private, PrivateText(source, text, values))

    def note_handed_over(
        self, messages: Sequence[Message], label: Callable[[ToolResult], ToolResult]
    ) -> None:
        """Take into account the messages that a request brings, which may be a whole conversation.

        What people say in it is trusted. Its answers are not, even where a model of ours wrote them: what that model
        had read did not come along.

        Args:
            label: Returns a result with its whole label.
        """
        self.trust_words(list_trusted_texts(messages, self))
        for message in messages:
            if isinstance(message, ToolMessage):
                self.note(label(message.result))
        if any(isinstance(message, AssistantMessage) for message in messages):
            self.note_unseen(HANDED_OVER)

    def note_unseen(self, label: Label) -> None:
        """Take a result into account of which only the label remains."""
        if label.integrity == "untrusted" and self.taint is None:
            self.taint = label
        if label.confidentiality == "private":
            self.lost_private = label.source

    # ------------------------------------------------------------------ runs that a run starts

    def as_json(self) -> Mapping[str, Json] | None:
        """Return what a run that this one starts takes over; None of a run that has read nothing that matters."""
        if self.taint is None and not self.private and not self.lost_private:
            return None
        taint = self.taint
        return {
            "words": list(self.words),
            "entries": sorted(self.entries),
            "taint": None if taint is None else [taint.source, taint.call],
            "private": [[each.source, each.text] for each in self.private],
            "lost_private": self.lost_private,
        }

    def inherit(self, given: Mapping[str, Json]) -> None:
        """Take over what the run had read that starts this one: its question may be made of that."""
        self.inherited = given
        self.trust_words(given["words"])
        self.entries = self.entries.union(given["entries"])
        if given["taint"] is not None and self.taint is None:
            source, call = given["taint"]
            self.taint = Label(source, "untrusted", call=call)
        for source, text in given["private"]:
            self._note_private(source, text)
        self.lost_private = given["lost_private"] or self.lost_private

    @property
    def trusts_question(self) -> bool:
        """Whether the questions of the run are a person's, and not made of what another run read."""
        return self.inherited is None or self.inherited["taint"] is None


def list_trusted_texts(messages: Iterable[Message], trust: Trust) -> Iterator[str]:
    """Yield what people say in the messages of a run: instructions, and questions that are a person's own."""
    for message in messages:
        if isinstance(message, SystemMessage):
            yield message.text
        elif isinstance(message, UserMessage) and trust.trusts_question:
            yield message.text
            for part in message.parts:
                if isinstance(part, Mapping):
                    yield from _texts_in(part)


def _may_have_words(result: ToolResult) -> bool:
    """Whether a result may hold somebody's words; nothing, true and false do not."""
    return result.failure is not None or not (
        result.value is None or isinstance(result.value, bool)
    )


def join_labels(first: Label, second: Label) -> Label:
    """Return the label of what is made of both."""
    if second.integrity == "untrusted" and first.integrity == "trusted":
        joined = replace(second, confidentiality=first.confidentiality)
    else:
        joined = first
    if "private" in (first.confidentiality, second.confidentiality):
        joined = replace(joined, confidentiality="private")
    if joined.integrity == "untrusted" and joined.is_directory:
        joined = replace(joined, is_directory=False)
    return joined


def label_recorded(result: ToolResult, tool: BaseTool | None) -> Label:
    """Return the label of a result that was recorded or handed over, perhaps by an earlier version.

    Args:
        tool: Its tool as it is declared now; None where there is none of that name.
    """
    if result.failure is not None and not (result.attempts or result.replayed):
        return result.label
    if tool is None:
        return UNKNOWN if result.label == TRUSTED else result.label
    return join_labels(result.label, tool.label)


# ---------------------------------------------------------------------- the rule


def find_objection(
    tool: BaseTool,
    arguments: Mapping[str, Json],
    trust: Trust,
    taint: Label | None,
    configured: Iterable[Any] = (),
    *,
    is_asked: bool = False,
) -> Provenance | None:
    """Return what untrusted text has to do with a call that sends something; None where nobody needs to be asked.

    Args:
        taint: The label of the first untrusted result that whoever made the call had read; None where there is none.
        configured: Values of the set-up beside the trusted words.
        is_asked: A person is asked about the call anyway, and sees its arguments.
    """
    values = list(configured)
    texts = [*trust.words, *_texts_in(values)] if values else trust.words
    words = _Words(texts, trust.entries)
    unnamed: dict[str, list[str]] = {}
    if taint is not None:
        is_risky = tool.effective_risk == "high" and not is_asked
        unnamed = _find_unnamed(tool, arguments, words, is_risky=is_risky)
    private: dict[str, str] = {}
    if trust.private or trust.lost_private:
        private = _find_private(tool, arguments, trust, words)
    if not unnamed and not private:
        return None
    return Provenance(taint, unnamed, private)


def _find_unnamed(
    tool: BaseTool, arguments: Mapping[str, Json], words: _Words, *, is_risky: bool
) -> dict[str, list[str]]:
    """Return the destinations, and the addresses within texts, that occur in no trusted words, by argument."""
    destinations: Collection[str] = tool.destinations
    if is_risky and not destinations and tool.sends.destination is None:
        # nothing says what it reaches, so all that it is given must be named
        destinations = arguments.keys()
    unnamed: dict[str, list[str]] = {}
    for name, value in arguments.items():
        if name in destinations:
            fixed = _texts_in(_fixed_values(tool, name))
            missing = [
                text
                for text in _texts_in(value, numbers=True, keys=False)
                if text not in fixed and not _names_destination(words, text)
            ]
        elif tool.sends_texts:
            missing = _find_unnamed_addresses(tool, name, value, words)
        else:
            missing = _find_unnamed_wholes(tool, name, value, words)
        if missing:
            unnamed[name] = list(dict.fromkeys(missing))
    if is_risky and not arguments:
        unnamed["(the call itself)"] = [tool.name]
    return unnamed


def _find_unnamed_addresses(
    tool: BaseTool, name: str, value: Json, words: _Words
) -> list[str]:
    """Return the addresses within the texts of an argument that occur in no trusted words."""
    if type(value) is str and not _may_hold_address(value):
        return []
    found = [
        (text, address) for text in _texts_in(value) for address in find_addresses(text)
    ]
    if not found:
        return []
    fixed = _texts_in(_fixed_values(tool, name))
    return [
        address
        for text, address in found
        if text not in fixed and not words.has(address)
    ]


def _find_unnamed_wholes(
    tool: BaseTool, name: str, value: Json, words: _Words
) -> list[str]:
    """Return the texts of an argument that are an address of the web or of mail and nothing else, and unnamed.

    A tool that is not known to send may do so where an argument is an address. An address within a note goes nowhere.
    """
    if type(value) is str and not _may_hold_address(value):
        return []
    found = [
        text for text in _texts_in(value, keys=False) if re.fullmatch(_WHOLE, text)
    ]
    fixed = _texts_in(_fixed_values(tool, name)) if found else []
    return [text for text in found if text not in fixed and not words.has(text)]


def _names_destination(words: _Words, text: str) -> bool:
    """Whether trusted words name a destination, or each address of a list of them."""
    if words.has(text):
        return True
    parts = [part for part in _SEPARATORS.split(text) if "@" in part or "://" in part]
    return bool(parts) and all(map(words.has, parts))


def _fixed_values(tool: BaseTool, name: str) -> Json:
    """Return the values of an argument that its author has written into the schema: a model chooses among them."""
    properties: Any = tool.parameters.get("properties") or {}
    schema = properties.get(name)
    if not isinstance(schema, Mapping):
        return []
    items = schema.get("items")
    own = [schema.get(each) for each in ("enum", "const", "default")]
    if isinstance(items, Mapping):
        own += [items.get(each) for each in ("enum", "const")]
    return own


def _find_private(
    tool: BaseTool, arguments: Mapping[str, Json], trust: Trust, words: _Words
) -> dict[str, str]:
    """Return the arguments with private values that go to where their source does not name, with that source."""
    named = [arguments[each] for each in tool.destinations if each in arguments]
    receivers = _texts_in(named, numbers=True, keys=False)
    private: dict[str, str] = {}
    if trust.lost_private and arguments:
        private[next(iter(arguments))] = trust.lost_private
    for source in trust.private:
        named_there = _Words([source.text])
        if receivers and all(
            _names_destination(named_there, each) for each in receivers
        ):
            continue
        for name, value in arguments.items():
            text = _normalize("\n".join(_texts_in(value, numbers=True)))
            found = source.values.intersection(_find_private_words(text))
            if any(not words.has(each) for each in found):
                private.setdefault(name, source.source)
    return private


def describe_objection(provenance: Provenance) -> str:
    """Return why a person is asked, as a clause."""
    clauses = []
    if provenance.unnamed:
        values = "; ".join(
            f"`{name}` {_list_values(values)}"
            for name, values in list(provenance.unnamed.items())[:_MOST_LISTED]
        )
        clauses.append(f"nobody trusted has named {values}")
    clauses += [
        f"`{name}` may hold private values of `{source}`, which does not name where they go"
        for name, source in provenance.private.items()
    ]
    if provenance.tainted_by is not None:
        by = provenance.tainted_by
        call = f" (call {by.call})" if by.call else ""
        clauses.append(f"the run has read words from outside, by `{by.source}`{call}")
    return "; ".join(clauses)


def _list_values(values: Sequence[str]) -> str:
    shown = [
        repr(each if len(each) <= _MOST_SHOWN else f"{each[:_MOST_SHOWN]}…")
        for each in values[:_MOST_LISTED]
    ]
    if len(values) > _MOST_LISTED:
        shown.append(f"and {len(values) - _MOST_LISTED} more")
    return ", ".join(shown)


# ---------------------------------------------------------------------- words in texts


_SEPARATORS = re.compile(r"[\s,;<>\"'()\[\]{}]+")
_TOKEN = re.compile(r"[^\s<>\"'`{}|\\^()\[\],;\x7f-\U0010ffff]+")
_URL = re.compile(r"[a-z][a-z0-9+.\-]*+://.*")
_MAIL = re.compile(r"[^=:@]++@[^@]+")
_WHOLE = r"\s*+(?:(?:[^<>@]{0,80}<)?+[^\s@<>]++@[^\s@<>]++>?+|[A-Za-z][A-Za-z0-9+.\-]*+://\S++)\s*+"
"""A text that is one address: of mail, or of the web with its scheme. Compiled at first use: importing has a budget."""
_HOST = re.compile(r"((?:[a-z0-9\-]++\.)++([a-z]{2,24}+))(?![a-z0-9\-@])(/?)")
_OF_HOST = re.compile(r"[a-z0-9\-]\.[a-z]{2}")
"""What every name of a host holds. The full stops of sentences are followed by something else."""
_ENDINGS = frozenset(
    (
        "com", "net", "org", "io", "dev", "app", "co", "info", "biz", "xyz", "ru", "cn", "site", "online", "top",
        "shop", "cloud", "page", "link", "click", "ly", "gg", "to", "eu", "de", "uk", "fr", "jp", "in", "us",
    )
)  # fmt: skip
"""Last parts of names of hosts that readers make links of without `www.` or a path."""


def find_addresses(text: str) -> list[str]:
    """Return the addresses within a text: of the web, of mail, and names of hosts."""
    if not _may_hold_address(text):
        return []
    if len(text) > _MOST_TEXT:
        return [f"a text of {len(text):,} characters"]
    text = _normalize(text)
    if "@" not in text and "://" not in text and not _OF_HOST.search(text):
        return []
    return [
        address for token in _TOKEN.findall(text) if (address := _find_address(token))
    ]


def _may_hold_address(text: str) -> bool:
    """Whether a text may contain an address. In ASCII every address has one of these signs; any other text may."""
    return "." in text or "@" in text or "/" in text or not text.isascii()


def _find_address(token: str) -> str:
    """Return the address that a word is, or holds; empty where it holds none."""
    word = token.rstrip(".,:!?*_~")
    if "://" in word:
        found = _URL.search(word)
        return found[0] if found else word
    if "@" in word[1:]:
        found = _MAIL.search(word)
        return found[0] if found else ""
    if "." not in word:
        return ""
    host = _HOST.search(word)
    if host is None:
        return ""
    if host[1].startswith("www.") or host[3] or host[2] in _ENDINGS:
        return word[host.start() :]
    return ""


def _find_private_words(text: str) -> Iterator[str]:
    """Yield the words with so many digits that they name one thing: a passport, a card, an account."""
    for match in re.finditer(r"[\w\-+/.]{6,}", text):
        word = match[0].strip("-+/._")
        if sum(map(str.isdigit, word)) >= _LEAST_PRIVATE_DIGITS:
            yield word


class _Words:
    """Trusted texts, in which values are looked for, and entries of directories."""

    def __init__(self, texts: Iterable[str], entries: Collection[str] = ()) -> None:
        self._texts = texts
        self._entries = entries

    @cached_property
    def _text(self) -> str:
        """All of them as they are compared, once something is looked for in them."""
        return _normalize("\n".join(self._texts))

    def has(self, value: str) -> bool:
        """Whether a value occurs, and not as a part of a longer word or address."""
        wanted = _normalize(value).strip()
        if not wanted or wanted in self._entries:
            return True
        if _occurs(wanted, self._text):
            return True
        return _occurs_in_groups(wanted, self._text)


def _occurs(wanted: str, text: str) -> bool:
    """Whether a value occurs in a text between the ends of words: `eve.com` is no part of `steve.com`."""
    position = text.find(wanted)
    while position >= 0:
        end = position + len(wanted)
        if _ends_before(text, position, wanted[0]) and _ends_after(
            text, end, wanted[-1]
        ):
            return True
        position = text.find(wanted, position + 1)
    return False


def _occurs_in_groups(wanted: str, text: str) -> bool:
    """Whether the number of an account occurs, as people write it: in groups, with spaces or hyphens."""
    compact = re.sub(r"[\s\-]", "", wanted)
    if not _ACCOUNT.fullmatch(compact):
        return False
    grouped = "[ \\-]?".join(compact)
    return re.search(f"(?<![a-z0-9]){grouped}(?![a-z0-9])", text) is not None


_ACCOUNT = re.compile(r"(?=(?:[a-z]*[0-9]){6})[a-z0-9]{6,64}")

_JOINING_BEFORE = frozenset("._-+@%")
_JOINING_AFTER = frozenset("_-+@%")


def _ends_before(text: str, position: int, first: str) -> bool:
    if position == 0 or not _is_of_word(first):
        return True
    before = text[position - 1]
    return not (_is_of_word(before) or before in _JOINING_BEFORE)


def _ends_after(text: str, end: int, last: str) -> bool:
    if end == len(text):
        return True
    after = text[end]
    if after in ".:":  # the end of a sentence, unless a word goes on
        following = text[end + 1 : end + 2]
        return not following or not _is_of_word(following)
    if after in _JOINING_AFTER:
        return False
    return not (_is_of_word(after) and (_is_of_word(last) or last in "/="))


def _is_of_word(char: str) -> bool:
    # between Chinese characters no space marks the end of a word
    return char.isalnum() and not "\u2e80" <= char <= "\ud7af"


def _normalize(text: str) -> str:
    """Return a text as it is compared: without what nobody sees, and without case and width."""
    if text.isascii():
        return text.lower()
    shown = "".join(char for char in text if char.isspace() or not is_unseen(char))
    return unicodedata.normalize("NFKC", shown).casefold()


def _texts_in(value: Any, *, numbers: bool = False, keys: bool = True) -> list[str]:
    """Return the texts in a JSON value; with `numbers`, those as texts; with `keys`, the names in objects too."""
    if isinstance(value, str):
        return [value]
    texts: list[str] = []
    # asked first, since asking whether a list is a mapping takes longer than reading it
    if not isinstance(value, list | tuple) and isinstance(value, Mapping):
        texts = [str(name) for name in value] if keys else []
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            texts += _texts_in(each, numbers=numbers, keys=keys)
    elif numbers and isinstance(value, int | float) and not isinstance(value, bool):
        texts.append(str(value))
    return texts


def _list_entries(value: Any) -> Iterator[str]:
    """Yield what a directory lists: each of its values, or the lines of a text and what commas separate."""
    value = plain(value)
    entries = re.split(r"[\n,;]", value) if isinstance(value, str) else [value]
    for text in _texts_in(entries, numbers=True):
        yield _normalize(text).strip()


def _join_texts(value: Any) -> str:
    return "\n".join(_texts_in(plain(value), numbers=True))
