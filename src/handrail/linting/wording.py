"""Rules about what a tool is called and what its description says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from handrail.linting.findings import Settings
from handrail.linting.rule import Noticed, Rule, define
from handrail.linting.subjects import Subject
from handrail.linting.texts import (
    adds_nothing_to,
    content,
    is_chinese,
    length_words,
    says,
    words,
)
from handrail.schemas.walk import split_words as table

_SHORTEST_WORDS = 4
"""A description below it cannot say what is done to what."""
_LONGEST_VAGUE_WORDS = 12
"""A longer description says more than its vague words."""

_EMPTY_NAMES = table(
    "run do execute process handle helper tool function action main test call util misc data stuff thing task "
    "operation perform invoke api command foo bar my method handler manager worker common"
)
_FETCHES = table(
    "get list search find fetch retrieve read show lookup look query count check describe view export download "
    "compute calculate convert translate summarize validate inspect analyze estimate predict generate explain compare "
    "return ask browse"
)
_FETCHES_IN_CHINESE = re.compile(
    "查询|查找|查看|搜索|检索|获取|列出|读取|计算|统计|翻译|转换|预测|生成|分析|检查|推荐|比较"
)


def _fault(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if subject.fault:
        yield Noticed(
            subject.fault,
            "Write its arguments as JSON Schema 2020-12: an object with `properties`.",
        )


def _missing(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if not subject.description.strip():
        yield Noticed(
            "has no description",
            "Say what it does, when to use it and when not, and what it returns.",
        )


def _repeats_name(subject: Subject, _: Settings) -> Iterator[Noticed]:
    text = subject.description.strip()
    if (
        text
        and length_words(text) <= _LONGEST_VAGUE_WORDS
        and adds_nothing_to(text, subject.name)
    ):
        yield Noticed(
            f"its description says no more than its name: {text!r}",
            "Add what the name cannot say: what comes back, what is meant by the words, when to use it.",
        )


def _short(subject: Subject, _: Settings) -> Iterator[Noticed]:
    text = subject.description.strip()
    if (
        text
        and length_words(text) < _SHORTEST_WORDS
        and not adds_nothing_to(text, subject.name)
    ):
        yield Noticed(
            f"its description is too short to choose it by: {text!r}",
            "Write one sentence on what it does to what, and one on when to use it.",
        )


def _vague(subject: Subject, _: Settings) -> Iterator[Noticed]:
    text = subject.description.strip()
    # after a comma or a colon the text may still name the act
    is_vague = says("vague", text) or (
        says("manages", text) and not re.search("[,，:：]", text)
    )
    if not is_vague or length_words(text) > _LONGEST_VAGUE_WORDS:
        return
    yield Noticed(
        f"its description does not say what it does: {text!r}",
        'Name the act and the thing: "Create an invoice", not "Manage invoices" or "Process data".',
    )


def _no_use(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if subject.description.strip() and not says("when", subject.description):
        rewrite = "Use it for (…). Do not use it for (…); take (another tool) instead."
        if is_chinese(subject.description):
            rewrite = "用于……；不要用于……，那时请用（另一个工具）。"
        yield Noticed("does not say when to use it, or when not", rewrite)


def _no_result(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if (
        subject.has_output
        or not subject.description.strip()
        or says("result", subject.description)
    ):
        return
    if _FETCHES_IN_CHINESE.search(subject.description) or _FETCHES & {
        *words(subject.name),
        *content(subject.description),
    }:
        return  # what is fetched is what comes back
    rewrite = "Returns the new order's number. Or declare an output schema."
    if is_chinese(subject.description):
        rewrite = "返回……"
    yield Noticed("does not say what it returns", rewrite)


def _empty_name(subject: Subject, _: Settings) -> Iterator[Noticed]:
    parts = {word for word in words(subject.name) if not word.isdigit()}
    if subject.name and parts <= _EMPTY_NAMES:
        yield Noticed(
            "its name says nothing of what it does",
            "Name the act and the thing: `create_invoice`.",
        )


def _untidy(subject: Subject, _: Settings) -> Iterator[Noticed]:
    texts = [
        subject.description,
        *(str(each.schema.get("description") or "") for each in subject.parameters),
    ]
    if blanks := sum(len(text) - len(tidy(text)) for text in texts):
        yield Noticed(
            f"its texts carry {blanks} blanks that are paid for in every request",
            "Take out the indentation and the blanks at the ends; `--fix` does.",
        )


def tidy(text: str) -> str:
    """Return a text without the indentation of its source and without blanks at the ends of lines."""
    lines = [line.rstrip() for line in text.strip().split("\n")]
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line]
    cut = min(indents, default=0)
    whole = "\n".join([lines[0], *(line[cut:] for line in lines[1:])])
    return re.sub(r"\n{3,}", "\n\n", whole)


def _foreign_language(subject: Subject, settings: Settings) -> Iterator[Noticed]:
    text = " ".join([subject.description, *subject.aliases])
    if settings.users is None or not re.search(r"\w", text):
        return
    if settings.users == "zh" and not is_chinese(text):
        yield Noticed(
            "its users write Chinese and its texts have none: only the commonest words find it",
            "Add the main words in Chinese to the description, or as `aliases`: 查询天气, 气温.",
        )
    elif (
        settings.users == "en"
        and is_chinese(text)
        and not re.search(r"[A-Za-z]{3,}", text)
    ):
        yield Noticed(
            "its users write English and its description is Chinese",
            "Add the main words in English to the description, or as `aliases`.",
        )


_GOOD = define(
    "get_exchange_rate",
    "Get today's exchange rate between two currencies. Use it for money; for units of measure use convert_unit. "
    "Returns the rate as a number.",
    required=["base", "quote"],
    base="Currency to convert from, as an ISO 4217 code such as EUR.",
    quote="Currency to convert into, as an ISO 4217 code such as CNY.",
)
_ORDER = {"order_id": 'Number of the order, such as "A-1042".'}

RULES = (
    Rule(
        "definition-broken", "error", "it cannot be described to a model", look=_fault,
        bad=[{"name": "get_order", "description": "Look an order up by its number.",
              "parameters": {"type": "object", "properties": {"order_id": {"type": "order number"}}}}],
        good=[define("get_order", "Look an order up by its number.", required=["order_id"], **_ORDER)],
    ),
    Rule(
        "description-missing", "error", "it has no description", look=_missing,
        bad=[define("get_exchange_rate", "")], good=[_GOOD],
    ),
    Rule(
        "description-repeats-name", "warning", "its description says no more than its name", look=_repeats_name,
        bad=[define("list_user_accounts", "Lists the user accounts.")],
        good=[define("list_user_accounts", "List everybody who can sign in, newest first, 50 a page.")],
    ),
    Rule(
        "description-short", "warning", "its description is too short to choose it by", look=_short,
        bad=[define("get_rate", "Currency rate.")], good=[_GOOD],
    ),
    Rule(
        "description-vague", "warning", "its description does not name an act and a thing", look=_vague,
        bad=[define("invoices", "Handles various invoice operations."), define("orders", "用于进行订单相关操作。")],
        good=[define("create_invoice", "Create an invoice for an order and send it to the customer.")],
    ),
    Rule(
        "when-to-use-missing", "note", "it does not say when to use it, or when not", look=_no_use,
        bad=[define("search_web", "Search the web and return ten pages.")],
        good=[
            define("search_web", "Search the web and return ten pages. Use it for news; do not use it for our own "
                    "documents, take search_handbook instead."),
            define("search_web", "搜索网页，返回十条结果。用于查找新闻；不要用于公司内部文档。"),
        ],
    ),
    Rule(
        "result-unknown", "note", "it does not say what it returns", look=_no_result,
        bad=[define("create_ticket", "Open a ticket for the support team.", required=["title"], title="One line.")],
        good=[
            define("create_ticket", "Open a ticket for the support team. Returns the ticket's number.",
                    required=["title"], title="One line."),
            {**define("create_ticket", "Open a ticket for the support team."), "outputSchema": {"type": "string"}},
        ],
    ),
    Rule(
        "name-empty", "warning", "its name says nothing of what it does", look=_empty_name,
        bad=[define("process_data", "Create an invoice for an order."), define("tool1", "Create an invoice.")],
        good=[define("create_invoice", "Create an invoice for an order.")],
    ),
    Rule(
        "text-untidy", "note", "its description carries indentation and blanks", look=_untidy, is_fixable=True,
        bad=[define("get_rate", "Get today's rate.\n\n        Use it for money.\n        Returns a number.   ")],
        good=[define("get_rate", "Get today's rate.\n\nUse it for money.\nReturns a number.")],
    ),
    Rule(
        "language-differs", "warning", "its texts are not in the users' language", look=_foreign_language,
        needs={"users": "zh"},
        bad=[define("get_weather", "Get the current weather of a city.")],
        good=[define("get_weather", "查询城市的当前天气。Get the current weather of a city.")],
    ),
)  # fmt: skip
