"""Judge what a text for a model says by its words, in English and in Chinese.

Rule 1: judging a text never depends on the tool that it belongs to; the caller compares.
Rule 2: a pattern is written to miss rather than to accuse: a warning that is wrong costs more than one that is absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from handrail.schemas.walk import split_words as table

_CJK = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_LETTER = re.compile(r"[^\W\d_]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(
    "[\u3400-\u9fff\uf900-\ufaff]+|[^\\W\\d_\u3400-\u9fff\uf900-\ufaff]+|\\d+"
)


@lru_cache(maxsize=16384)
def words(text: str) -> tuple[str, ...]:
    """Return the words of a name or a text, small and in the singular; Chinese as pairs of characters.

    >>> words("getUserNames of the_account"), words("查询天气")
    (('get', 'user', 'name', 'of', 'the', 'account'), ('查询', '询天', '天气'))
    """
    parts: list[str] = []
    for piece in _WORD.findall(_CAMEL.sub(" ", text)):
        if _CJK.match(piece):
            parts += [piece[at : at + 2] for at in range(len(piece) - 1)] or [piece]
        else:
            parts.append(_singular(piece.lower()))
    return tuple(parts)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and word[-2] not in "sui":
        return word[:-1]
    return word


def length_words(text: str) -> int:
    """Return how many words a text has; two Chinese characters count as one."""
    return (
        len(re.findall(r"[^\W_]+", _CJK.sub(" ", text)))
        + (len(_CJK.findall(text)) + 1) // 2
    )


def is_chinese(text: str) -> bool:
    """Whether a text is written in Chinese, for the most part or in a good part."""
    letters = len(_LETTER.findall(text))
    return letters > 0 and len(_CJK.findall(text)) >= letters / 5


FILLERS = table(
    "a an the of for to in on by with and or is are be this that it its from as at into will can which given "
    "specific specified single new all existing current read write only operation destructive "
    "tool function use used using parameter argument value field 的 了"
)
"""Words that mean nothing by themselves."""

_SYNONYMS = {
    "identifier": "id",
    "unique": "",
    "retrieve": "get",
    "fetch": "get",
    "show": "get",
    "remove": "delete",
}


def content(text: str) -> frozenset[str]:
    """Return the words of a text that mean something, each in one spelling."""
    return frozenset(_SYNONYMS.get(word, word) for word in words(text)) - FILLERS - {""}


def adds_nothing_to(text: str, name: str) -> bool:
    """Whether every meaningful word of a text is in the name already.

    >>> adds_nothing_to("Lists the user accounts.", "list_user_accounts")
    True
    """
    return not content(text) - content(name)


_SAYS = {
    "when": r"\b(use (this|it|when|for|only|to|in|before|after|instead)|used (to|for|when|by)"
    r"|when (you|the|a|an|asked|to)\b"
    r"|call this|(do not|don't|never) (use|call)|prefer|instead of|useful|best for|ideal for|intended for|suitable for"
    r"|only (if|when|for)|before (you|calling|using)|must be called)"
    r"|用于|适用|适合|不要用|请勿|不适用|当.{1,30}时|场景|如需|"
    r"若要|想要.{0,20}时|需要.{0,20}时|前使用|后使用|应使用|请使用|而不是",
    "result": r"\b(returns?|returned|returning|results?|outputs?|yields?|responds?|responses?|produces?|gives?|tells?"
    r"|provides?|reports?|shows?|answers?)\b|返回|输出|结果|得到|给出|获取|告知|回传",
    "optional": r"\b(optional(ly)?|if (omitted|not|none|empty|absent|unset|left|specified|provided|given|set)"
    r"|when (omitted|not|empty)|defaults?\b|leave (empty|blank)|omit|may be (omitted|empty)|can be (omitted|empty)"
    r"|filter|if any|null)|可选|选填|默认|缺省|可不填|可省略|留空|为空时|不填|不传|过滤|筛选",
    "vague": r"\b(various (operation|task|thing|function|action|feature|purpose|request|kind)s|(various|some) data"
    r"|stuff|things?|something|miscellaneous|misc|and so on|some (operation|action|task)s?"
    r"|(perform|do|execute|run|handle|process)(e?s|ing)? (an? |the |some |all )?"
    r"(data|operation|action|task|request|job)s?)\b"
    r"|各种(操作|功能|任务|数据)|一些(操作|数据|东西)|相关(操作|功能)|进行(操作|处理)|处理数据|等等|数据处理",
    "manages": r"^\W*(manages?|handles?|deals? with|processe?s?|works? with)\b|^\W*(管理|处理|操作)",
    "instance": r"\b(e\.?g\.?|for example|for instance|examples?|such as|like|etc|including|incl)\b"
    r"|例如|比如|譬如|诸如|如[：:]|等",
    "form": r"\b(formats?|formatted|iso|rfc|yyyy|hh:mm|iana|e\.164|bcp|utc|epoch|unix"
    r"|regex|syntax|pattern|codes?|hex|rgb"
    r"|e\.?g\.?|examples?|for instance|such as|like|relative|now|today|tomorrow|ago)\b"
    r"|\d|[\"'`“”「」]|格式|例如|比如|如|形如",
}  # fmt: skip
_PATTERNS = {name: re.compile(pattern, re.I | re.S) for name, pattern in _SAYS.items()}


def says(what: str, text: str) -> bool:
    """Whether a text says something of a kind: `when` to use it, the `result`, that it is `optional`, its `form`."""
    return _PATTERNS[what].search(text) is not None


UNITS = table(
    "s sec second ms millisecond msec us microsecond ns nanosecond min minute h hr hour day week month quarter year "
    "bit byte kb mb gb tb kib mib gib kbps mbps hz khz mhz ghz fps rpm "
    "px pixel pt point em rem mm cm m km meter metre kilometer kilometre centimeter millimeter mile foot "
    "feet inch yard "
    "g kg mg gram kilogram lb pound ounce oz ton tonne l ml liter litre gallon "
    "c f k celsius fahrenheit kelvin degree radian percent percentage ratio fraction share bps "
    "usd eur gbp cny rmb jpy dollar euro cent yuan currency unit iso wei gwei "
    "character char token word line item row page entry record element digit node step cell core milli m3 sqft"
)
_CHINESE_UNITS = re.compile(
    "秒|分钟|小时|天|周|月|年|字节|比特|像素|米|公里|英里|英尺|英寸|公斤|克|吨|斤|磅|摄氏|华氏|百分|比例|元|欧元|英镑|币|"
    "单位|字符|平方|立方|[%℃℉°$€£¥]"
)


def names_unit(text: str) -> bool:
    """Whether a text names a unit: `timeout_s`, "in seconds", 单位为秒."""
    return (
        not UNITS.isdisjoint(words(text.replace("'s", "")))
        or _CHINESE_UNITS.search(text) is not None
    )


_MARKS = "\"'`“”‘’「」"
_VALUE = rf"[{_MARKS}]*[A-Za-z][\w.-]{{0,40}}[{_MARKS}]*"
_QUOTED = rf"[{_MARKS}]+[A-Za-z][\w.-]{{0,40}}[{_MARKS}]+"
_SEPARATOR = r"\s*(?:,\s*(?:or|and)\s+|[,，、|/]|\bor\b|或者?)\s*"
_KINDS = r"(?:values?|options?|choices|types|modes|states|formats|methods|levels)"
_LISTED = (
    # one of a, b or c; valid values are: a, b; 可选值：a、b
    rf"(?:\bone of(?: the following)?|(?:\b(?:valid|possible|allowed|accepted|supported|available|permitted)\s+{_KINDS}"
    rf"(?:\s+(?:are|is|include))?)|可选值|取值|只能是|枚举值|可选项|支持)\s*(?:为|包括|有|是)?\s*[:：(（]?\s*"
    rf"({_VALUE}(?:{_SEPARATOR}{_VALUE})+)",
    # either "a" or "b"; must be "a", "b" or "c"
    rf"\b(?:either|must be|can be|should be|values?)\b\s*:?\s*({_QUOTED}(?:{_SEPARATOR}{_QUOTED})+)",
    # (a, b, c)
    rf"[(（\[]\s*({_VALUE}(?:\s*[,，、|/]\s*(?:or\s+)?{_VALUE}){{2,}})\s*[)）\]]",
)
_FAR_CHARS = 60
"""Brackets further from the beginning explain something else than the parameter."""
_LISTS = [re.compile(pattern, re.I) for pattern in _LISTED]
_OPEN_END = re.compile(
    r"\s*(?:,|，)?\s*(?:\.\.\.|…|etc\b|and (?:so on|more|others)|等)", re.I
)
_ABBREVIATED = re.compile(r"\be\.?\s?g\.?,?", re.I)
_NO_VALUES = table(
    "and or the a an if not is be optional required default e.g eg i.e ie string number"
)


def list_values(text: str) -> Sequence[str]:
    """Return the values that a text lists as the only ones; empty where it lists none, or only instances.

    >>> list_values("State of the alert: one of open, closed or fixed.")
    ['open', 'closed', 'fixed']
    >>> list_values("A city such as Paris, London")
    []
    """
    text = _ABBREVIATED.sub("for example", text)
    for pattern in _LISTS:
        for match in pattern.finditer(text):
            if pattern is _LISTS[-1] and match.start() > _FAR_CHARS:
                continue
            if _lists_instances(text, match):
                continue
            parts = re.split(_SEPARATOR, match[1], flags=re.I)
            values = [part.strip(_MARKS + ". ") for part in parts]
            if not _NO_VALUES & {value.lower() for value in values}:
                return values
    return []


def _lists_instances(text: str, match: re.Match[str]) -> bool:
    """Whether the listed values are some of many: a "such as" before them, or an "etc." behind."""
    before = re.split(r"[.;。；]\s", text[: match.start()])[-1]
    return (
        _PATTERNS["instance"].search(before + match[0]) is not None
        or _OPEN_END.match(text, match.end()) is not None
    )
