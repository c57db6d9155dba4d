"""Rules about tools beside each other, at a provider, and in what they cost."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import log, sqrt

from handrail.errors import Json
from handrail.linting.findings import Cost, Settings
from handrail.linting.rule import Noticed, Rule, define, list_names, plural
from handrail.linting.subjects import Subject
from handrail.linting.texts import content, words
from handrail.schemas import portability
from handrail.schemas.portability import NotPortable


def _duplicates(
    subjects: Sequence[Subject], _: Settings
) -> Iterator[tuple[Subject, Noticed]]:
    counts = Counter(subject.name for subject in subjects)
    reported: set[str] = set()
    for subject in subjects:
        if counts[subject.name] > 1 and subject.name not in reported:
            reported.add(subject.name)
            yield (
                subject,
                Noticed(
                    f"{counts[subject.name]} tools have this name; a provider refuses them, or calls the wrong one",
                    "Rename one, or set a server's tools apart with a prefix (`Toolset.prefix`).",
                ),
            )


def _too_many(
    subjects: Sequence[Subject], settings: Settings
) -> Iterator[tuple[None, Noticed]]:
    if len(subjects) > settings.most_tools:
        yield (
            None,
            Noticed(
                f"{len(subjects)} tools are more than a model chooses well from; {settings.most_tools} are the most",
                "Show fewer at once: a selector (`handrail.selectors`), or `Toolset.filter` by tag.",
            ),
        )


# ---------------------------------------------------------------------- tools that look alike

_ALIKE = 0.8
"""Cosine from which a selector's order between two tools is a matter of chance; read off 478 real tools."""
_SAME_THING = 0.5
"""Cosine from which two descriptions are about one thing, where the names name the same act on it."""
_RARE = 60
"""A word that more tools share distinguishes none of them, and is not followed."""

_ACTS = {
    word: acts.split()[0]
    for acts in (
        "get read fetch retrieve show describe lookup look view",
        "search find query list browse",
        "update edit modify change replace patch",
        "create add new insert make",
        "delete remove drop erase",
        "run execute start launch invoke",
        "send post submit",
    )
    for word in acts.split()
}
"""Acts that users do not distinguish, each with the word that represents it."""


def _look_alikes(
    subjects: Sequence[Subject], _: Settings
) -> Iterator[tuple[Subject, Noticed]]:
    names = [_canonical(frozenset(words(subject.name))) for subject in subjects]
    texts = [content(subject.description) for subject in subjects]
    for one, other, likeness in find_alike([_canonical(each) for each in texts]):
        here = subjects[one]
        there = subjects[other]
        if here.name == there.name:
            continue
        is_certain = names[one] == names[other] or (
            bool(texts[one]) and texts[one] == texts[other]
        )
        is_likely = likeness >= _ALIKE and (
            texts[one] <= texts[other] or texts[other] <= texts[one]
        )
        if is_certain or is_likely:
            difference = _describe_difference(texts[one], texts[other])
            yield (
                here,
                Noticed(
                    f"is easily taken for `{there.name}`: {difference}",
                    f'Say in both what the other is for: "Use it for (…); for (…) use {there.name}."',
                    None if is_certain else "note",
                ),
            )


def _canonical(text: frozenset[str]) -> frozenset[str]:
    return frozenset(_ACTS.get(word, word) for word in text)


def _describe_difference(here: frozenset[str], there: frozenset[str]) -> str:
    """Say which words only one of two descriptions has."""
    only_here = here - there
    only_there = there - here
    if only_here and only_there:
        return f"only {_quote_words(only_here)} here and {_quote_words(only_there)} there tell the descriptions apart"
    if only_here:
        return f"only {_quote_words(only_here)} here tells the descriptions apart"
    if only_there:
        return f"only {_quote_words(only_there)} there tells the descriptions apart"
    return "their descriptions have the same words"


def find_alike(texts: Sequence[frozenset[str]]) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs of texts about one thing, with their cosine; rare words weigh more."""
    holders: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        for word in text:
            holders[word].append(number)
    # Among few tools every word is rare; counted as among fifty more, they weigh as they would in a larger set.
    weight = {
        word: log(1 + (len(texts) + 50) / len(numbers)) ** 2
        for word, numbers in holders.items()
    }
    length = [sqrt(sum(weight[word] for word in text)) or 1.0 for text in texts]
    for one, other in sorted(_pair_by_rare_word(holders.values())):
        shared = sum(weight[word] for word in texts[one] & texts[other])
        likeness = shared / (length[one] * length[other])
        if likeness >= _SAME_THING:
            yield one, other, likeness


def _pair_by_rare_word(holders: Iterable[Sequence[int]]) -> set[tuple[int, int]]:
    """Return the pairs of texts that share a word which is not too common."""
    return {
        pair
        for numbers in holders
        if len(numbers) <= _RARE
        for pair in combinations(numbers, 2)
    }


def _quote_words(words: frozenset[str]) -> str:
    quoted = [f'"{word}"' for word in sorted(words)]
    if len(quoted) > 5:
        quoted = [*quoted[:5], "..."]
    return ", ".join(quoted)


# ---------------------------------------------------------------------- providers


def _names(subject: Subject, _: Settings) -> Iterator[Noticed]:
    names = {
        provider: _name_in(definitions)
        for provider, definitions in subject.on_wires.items()
    }
    spelled = {
        provider: name for provider, name in names.items() if name != subject.name
    }
    if spelled:
        yield Noticed(
            f"its name is refused by {_list_names(spelled)}; there it is called `{next(iter(spelled.values()))}`",
            "Use letters, digits, `_` and `-`, at most 64, a letter first.",
        )
    odd = [
        each.name
        for each in subject.own_parameters
        if not _PORTABLE.fullmatch(each.name)
    ]
    if odd:
        yield Noticed(
            f"Anthropic refuses the {plural(len(odd), 'name', 'names')} {list_names(odd)}",
            "Name parameters with letters, digits, `_`, `.` and `-`, at most 64.",
        )


_PORTABLE = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _name_in(definition: Json) -> str:
    """Find the name in a definition, however deep the wire wraps it."""
    if isinstance(definition, list):
        return next((name for each in definition if (name := _name_in(each))), "")
    if not isinstance(definition, dict):
        return ""
    if isinstance(definition.get("name"), str):
        return str(definition["name"])
    return next((name for each in definition.values() if (name := _name_in(each))), "")


def _list_names(names: Mapping[str, str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _schemas(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if subject.fault:
        return
    tries = (
        portability.for_openai_strict,
        portability.for_anthropic_strict,
        portability.for_gemini,
    )
    losses = [
        outcome.reason
        for fit in tries
        if isinstance(outcome := fit(subject.schema), NotPortable)
    ]
    if losses:
        yield Noticed(
            " ".join(losses),
            "Close the object (`properties`, no further names), give every value a type; or do without strict.",
        )


# ---------------------------------------------------------------------- tokens

_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_PIECE = re.compile(r"[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]+")
_LETTERS_IN_A_TOKEN = 9


def count_tokens(text: str) -> int:
    """Return about how many tokens a text has, by the classes of its characters.

    A word is one token, a long one several; three digits are one; adjacent marks are one for every three; a
    Chinese character is about two thirds of one. It is an estimate of the JSON as it is sent: OpenAI and Gemini write
    definitions down more tightly before they count.
    """
    chinese = len(_CJK.findall(text))
    pieces = _PIECE.findall(_CJK.sub(" ", text))
    latin = sum(
        -(-len(piece) // (_LETTERS_IN_A_TOKEN if piece.isalpha() else 3))
        for piece in pieces
    )
    return latin + (2 * chinese + 2) // 3


def measure_cost(subject: Subject) -> Cost:
    """Return about how many tokens a tool takes in every request, as each provider's wire spells it."""
    sizes = {
        provider: count_tokens(json.dumps(definition, ensure_ascii=False))
        for provider, definition in subject.on_wires.items()
    }
    return Cost(subject.name, sizes)


def _costly(subject: Subject, settings: Settings) -> Iterator[Noticed]:
    cost = measure_cost(subject)
    if cost.most > settings.most_tokens:
        yield Noticed(
            f"its definition takes about {cost.most:,} tokens in every request; {settings.most_tokens:,} are the most",
            "Say less: one example, nothing that the schema says already; or let a selector show it only when needed.",
        )


_ORDER = {"order_id": 'Number of the order, such as "A-1042".'}
_LONG = " ".join(
    f"Line {n} of a handbook that nobody needs in order to call it."
    for n in range(1, 90)
)

RULES = (
    Rule(
        "name-twice", "error", "two tools have one name", look_at_all=_duplicates,
        bad=[define("search", "Search the web."), define("search", "Search the handbook.")],
        good=[define("search_web", "Search the web for a text."),
              define("search_handbook", "Search our handbook for a text.")],
    ),
    Rule(
        "too-many-tools", "warning", "a model is shown more tools than it chooses well from", look_at_all=_too_many,
        bad=[define(f"convert_{n}", f"Convert an amount by table {n}.") for n in range(21)],
        good=[define(f"convert_{n}", f"Convert an amount by table {n}.") for n in range(20)],
    ),
    Rule(
        "look-alike", "warning", "it is easily taken for another tool", look_at_all=_look_alikes,
        bad=[define("search_docs", "Search the documentation for a text."),
             define("find_docs", "Search the documentation for a given text.")],
        good=[define("search_docs", "Search the public documentation for a text."),
              define("find_ticket", "Find a support ticket by the customer's number.")],
    ),
    Rule(
        "name-refused", "warning", "a provider refuses its name", look=_names,
        bad=[define("orders.get", "Look an order up.", required=["order_id"], **_ORDER),
             define("查询订单", "查询一个订单。")],
        good=[define("get_order", "Look an order up.", required=["order_id"], **_ORDER)],
    ),
    Rule(
        "schema-not-portable", "note", "a provider's strict form cannot hold its schema", look=_schemas,
        bad=[define("get_order", "Look an order up.", filter={"type": "object", "description": "Any fields."})],
        good=[define("get_order", "Look an order up.", required=["order_id"], **_ORDER)],
    ),
    Rule(
        "definition-costly", "warning", "its definition takes many tokens in every request", look=_costly,
        bad=[define("get_order", _LONG)],
        good=[define("get_order", "Look an order up.", required=["order_id"], **_ORDER)],
    ),
)  # fmt: skip
