"""Rules about the parameters of a tool: their names, texts, types, and what is required."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from handrail.errors import Json
from handrail.linting import definitions
from handrail.linting.findings import Settings
from handrail.linting.rule import Noticed, Rule, define, list_names, plural
from handrail.linting.subjects import Parameter, Subject
from handrail.linting.texts import (
    adds_nothing_to,
    content,
    list_values,
    names_unit,
    says,
    words,
)
from handrail.schemas.walk import Schema, walk
from handrail.schemas.walk import split_words as table

_TEXTS = frozenset({"string"})
_NUMBERS = frozenset({"integer", "number"})


def _find_undocumented(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if silent := [
        each
        for each in subject.parameters
        if not each.text and not each.path.endswith("[]")
    ]:
        yield Noticed(
            f"{list_names(each.path for each in silent)} {plural(len(silent), 'has', 'have')} no description",
            f"`{silent[0].name}`: say what it is, its form or unit, and an example.",
        )


def _restates(subject: Subject, _: Settings) -> Iterator[Noticed]:
    same = [
        each
        for each in subject.parameters
        if each.text
        and not each.is_closed
        and adds_nothing_to(each.text, each.name)
        and not says("form", each.text)
    ]
    if same:
        yield Noticed(
            f"the {plural(len(same), 'text', 'texts')} of {list_names(each.path for each in same)} "
            f"{plural(len(same), 'says', 'say')} no more than the name: {same[0].text!r}",
            f"`{same[0].name}`: say where it comes from, its form, and an example.",
        )


_EMPTY = table(
    "data info obj object val value input output arg args argument param params parameter payload stuff"
) | (
    table(
        "thing item tmp temp foo bar baz misc var any content1 x1 数据 参数 信息 内容 输入"
    )
)
_DOCUMENTED_WORDS = 4


def _empty_name(subject: Subject, _: Settings) -> Iterator[Noticed]:
    for each in subject.own_parameters:
        plain = re.sub(r"[\d_]+$", "", each.name.lower())
        # `a` and `b` are what arithmetic calls them; a text of one letter is somebody's abbreviation.
        is_letter = (
            len(each.name) == 1
            and each.name.isascii()
            and each.types <= _TEXTS | {"object"}
        )
        is_empty = (
            plain in _EMPTY
            and len(content(each.text) - content(each.name)) < _DOCUMENTED_WORDS
        )
        # In statistics, `data` means a list of numbers.
        if is_letter or (
            is_empty and each.types != {"array"} and plain not in words(subject.name)
        ):
            yield Noticed(
                f"the name `{each.name}` says nothing",
                "Name what it holds: `query`, `order_id`, `message_text`.",
            )


def _too_many(subject: Subject, settings: Settings) -> Iterator[Noticed]:
    count = len(subject.own_parameters)
    if count > settings.most_parameters:
        yield Noticed(
            f"has {count} parameters; more than {settings.most_parameters} are filled less reliably",
            "Part it into several tools, or leave out what has one sensible value.",
        )


_MOST_LEVELS = 2


def _too_deep(subject: Subject, _: Settings) -> Iterator[Noticed]:
    deepest = max(subject.parameters, key=lambda each: each.level, default=None)
    if deepest and deepest.level > _MOST_LEVELS:
        yield Noticed(
            f"`{deepest.path}` is {deepest.level} levels deep; models fill {_MOST_LEVELS} reliably",
            "Lift the inner fields up: `customer_city` instead of `order.customer.address.city`.",
        )


_QUANTITIES = table(
    "timeout duration delay interval ttl period length width height depth weight distance radius speed "
    "temperature amount price cost latency lifetime expiry size cooldown wait altitude mass area 时长 超时 "
    "长度 宽度 高度 重量 距离 金额 价格 温度 速度 面积 体积 间隔 延迟"
)
_OF_A_MODEL = re.compile("random|creativ|sampling|随机|采样", re.I)
"""A model's temperature has no unit."""
_NOT_MEASURED = table(
    "page batch pool sample window index chunk font shard step population team party group"
)


def _unit_missing(subject: Subject, _: Settings) -> Iterator[Noticed]:
    siblings = {word for each in subject.own_parameters for word in each.words}
    if siblings & {"unit", "currency"}:
        return
    for each in subject.parameters:
        if not _is_quantity(each) or _OF_A_MODEL.search(each.text):
            continue
        if not names_unit(f"{each.name} {each.text}"):
            yield Noticed(
                f"`{each.path}` is a number without a unit",
                f'Say it in the text ("in seconds") or in the name (`{each.name}_s`).',
            )


def _is_quantity(each: Parameter) -> bool:
    is_number = bool(each.types) and each.types <= _NUMBERS and not each.is_closed
    is_measured = bool(_QUANTITIES & {*each.words, each.name})
    return is_number and is_measured and not _NOT_MEASURED & set(each.words)


_FORMED = table(
    "date datetime timestamp since until phone telephone cron schedule locale currency timezone "
    "birthday jql jsonpath odata regex 日期 电话 手机 时区 币种 货币"
)
_FORMED_TOGETHER = (
    table("start time"),
    table("end time"),
    table("from time"),
    table("to time"),
    table("language code"),
)


def _form_missing(subject: Subject, _: Settings) -> Iterator[Noticed]:
    for each in subject.parameters:
        formed = _FORMED & {*each.words, each.name} or any(
            pair <= set(each.words) for pair in _FORMED_TOGETHER
        )
        if (
            each.types != _TEXTS
            or not formed
            or each.is_closed
            or each.has_sample
            or says("form", each.text)
        ):
            continue
        yield Noticed(
            f"`{each.path}` is a text of some form, and neither the form nor an example is given",
            f'`{each.name}`: "… as YYYY-MM-DD, such as 2026-03-09"; or `format`, `pattern`, `enum` in the schema.',
        )


def _shape_unknown(subject: Subject, _: Settings) -> Iterator[Noticed]:
    open_ones = [each for each in subject.parameters if _is_shapeless(each)]
    if open_ones:
        yield Noticed(
            f"what {list_names(each.path for each in open_ones)} may hold is given neither in the schema nor by an "
            "example",
            f"`{open_ones[0].name}`: give it a type, `properties` or `items`, or show an example in its text.",
        )


_SHAPES = table(
    "properties patternProperties anyOf oneOf allOf enum const $ref prefixItems"
)


def _is_shapeless(each: Parameter) -> bool:
    schema = each.schema
    if _SHAPES & schema.keys() or each.has_sample or _shows_an_instance(each.text):
        return False
    if not each.types:
        return not schema.keys() & {"format", "pattern", "not", "if"}
    if each.types == {"object"}:
        return (
            not isinstance(schema.get("additionalProperties"), dict)
            or not schema["additionalProperties"]
        )
    if each.types == {"array"}:
        items = schema.get("items")
        return not (isinstance(items, dict) and (_SHAPES | {"type"}) & items.keys())
    return False


def _shows_an_instance(text: str) -> bool:
    return (
        says("instance", text)
        or re.search(
            r"[\[{:：`\"]|schema|\b(ids?|names?|keys?|any (json )?value)\b|名|编号|任意",
            text,
            re.I,
        )
        is not None
    )


_OPPOSITES: Sequence[tuple[str, str]] = (
    ("on", "off"), ("enable", "disable"), ("enabled", "disabled"), ("include", "exclude"), ("show", "hide"),
    ("open", "close"), ("opened", "closed"), ("start", "stop"), ("asc", "desc"), ("ascending", "descending"),
    ("public", "private"), ("allow", "deny"), ("allow", "block"), ("add", "remove"), ("with", "without"),
    ("active", "inactive"), ("lock", "unlock"), ("mute", "unmute"), ("up", "down"), ("left", "right"), ("yes", "no"),
    ("visible", "hidden"), ("online", "offline"), ("read", "unread"), ("verbose", "quiet"), ("all", "none"),
    ("开", "关"), ("开启", "关闭"), ("启用", "禁用"), ("显示", "隐藏"), ("包含", "排除"),
    ("打开", "关闭"), ("升序", "降序"),
)  # fmt: skip


def _contradicting(subject: Subject, _: Settings) -> Iterator[Noticed]:
    switches = [each for each in subject.own_parameters if each.types == {"boolean"}]
    for one, other in combinations(switches, 2):
        if _are_opposite(one.words, other.words):
            yield Noticed(
                f"`{one.name}` and `{other.name}` contradict each other when both are true",
                f'Make it one: an `enum` of "{one.name}" and "{other.name}".',
            )


def _are_opposite(one: Sequence[str], other: Sequence[str]) -> bool:
    here = set(one) - set(other)
    there = set(other) - set(one)
    if len(one) == len(other) and len(here) == len(there) == 1:
        pair = (here.pop(), there.pop())
        return pair in _OPPOSITES or pair[::-1] in _OPPOSITES
    return (
        not (here and there)
        and (here | there) <= {"no", "not", "without", "dont"}
        and bool(here | there)
    )


def _find_enum_in_text(subject: Subject, _: Settings) -> Iterator[Noticed]:
    for each in subject.parameters:
        if not _takes_any_text(each):
            continue
        if values := list_values(each.text):
            enum = [f'"{value}"' for value in values[:6]]
            if len(values) > 6:
                enum.append("...")
            yield Noticed(
                f"`{each.path}` takes any text, and its description names the values that are meant",
                f'Move them into the schema: "enum": [{", ".join(enum)}].',
            )


def _takes_any_text(each: Parameter) -> bool:
    """Whether a parameter is a text, or a list of texts, that the schema does not restrict."""
    if each.is_closed:
        return False
    if each.types == _TEXTS:
        return True
    items = each.schema.get("items")
    if each.types != {"array"} or not isinstance(items, dict):
        return False
    is_restricted = bool(items.keys() & {"enum", "pattern", "format", "const"})
    return items.get("type") == "string" and not is_restricted


_OF_THE_CALLER = table(
    "user_id userid uid tenant tenant_id tenantid session_id sessionid request_id requestid trace_id traceid "
    "conversation_id conversationid caller_id current_user current_user_id thread_id 用户id 租户id 会话id"
)
_SECRETS = table(
    "api_key apikey access_token accesstoken auth_token authtoken bearer_token secret_key secretkey client_secret "
    "clientsecret private_key credentials jwt 密钥 令牌"
)


def _caller_id(subject: Subject, _: Settings) -> Iterator[Noticed]:
    for each in subject.own_parameters:
        spelled = (
            re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each.name).lower().replace("-", "_")
        )
        is_secret = spelled in _SECRETS
        subjects = set(each.words) - {"id", "current"}
        # A user is the thing itself in `get_user`; in `refund` it is whoever asks, and a model can name anybody.
        if not is_secret and (
            spelled not in _OF_THE_CALLER or subjects & subject.words
        ):
            continue
        if is_secret and subjects & set(words(subject.name)):
            continue
        what = "a secret" if is_secret else "who asks"
        yield Noticed(
            f"`{each.name}` is {what}, which the model should neither know nor choose",
            f"Let the caller fill it in: `{each.name}: Annotated[str, Injected]`, or from the session of the server.",
        )


def _unknown_required(subject: Subject, _: Settings) -> Iterator[Noticed]:
    properties = subject.schema.get("properties", {})
    if subject.schema.keys() & table("patternProperties allOf anyOf oneOf $ref"):
        return
    if lost := [
        name for name in subject.schema.get("required", ()) if name not in properties
    ]:
        yield Noticed(
            f"requires {list_names(lost)}, which {plural(len(lost), 'is', 'are')} not described: no call can be right",
            "Describe it under `properties`, or take it out of `required`.",
        )


_SAYS_REQUIRED = re.compile(
    r"^\W*required\b(?! (if|when|for|only))|\(required\)|\[required\]|[（(]必填[)）]|^必填|，必填",
    re.I,
)
_SAYS_OPTIONAL = re.compile(
    r"^\W*optional\b"
    r"|[(\[]optional\b(?! values)|\bif omitted\b|\bwhen omitted\b|\bif not (provided|specified|set|given)\b"
    r"|[(\[. ]default(s)?( is| to|:|=)|[（(]可选[)）,，]|^可选[，,。]|，可选[，,。]|^可选的|默认为|默认值|不填则|缺省",
    re.I,
)


def _requirement_differs(subject: Subject, _: Settings) -> Iterator[Noticed]:
    for each in subject.parameters:
        if each.types == {"object"}:
            continue  # its text describes what is inside
        if each.required and _SAYS_OPTIONAL.search(each.text):
            yield Noticed(
                f"`{each.path}` is required, and its text says that it may be left out: {_shorten(each.text)!r}",
                "Take it out of `required`, or out of the text what makes it optional.",
            )
        elif not each.required and _SAYS_REQUIRED.search(each.text):
            yield Noticed(
                f"`{each.path}` is not required, and its text says that it is: {_shorten(each.text)!r}",
                "Add it to `required`.",
            )


def _shorten(text: str) -> str:
    return text if len(text) <= 90 else text[:87] + "..."


_ACTS_ON_ONE = table(
    "get update delete remove retrieve describe create restart cancel close merge fetch read show scale set assign "
    "lookup add send change rename replace approve reject start stop 查询 获取 更新 删除 取消 修改 关闭"
)
_IDENTIFIERS = table("id uuid key slug url name number identifier ip email 编号 名称")


def _requires_nothing(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if subject.schema.get("required") or _has_alternatives(subject.schema):
        return
    acts = set(words(subject.name))
    if not _ACTS_ON_ONE & acts or {"list", "search"} & acts:
        return
    needed = [each for each in subject.own_parameters if _is_identifier(each)]
    if needed and "default" not in needed[0].schema:
        yield Noticed(
            f"requires nothing, though it needs {list_names([needed[0].name])}",
            f'"required": ["{needed[0].name}"]; and say of the others that they are optional, and what then holds.',
        )


def _has_alternatives(schema: Schema) -> bool:
    return bool(schema.keys() & table("anyOf oneOf allOf if dependentRequired $ref"))


def _is_identifier(each: Parameter) -> bool:
    """Whether a parameter names the one thing that a tool acts on, and its text does not call it optional."""
    is_described = bool(each.text) and not each.has_sample
    names_one = bool(_IDENTIFIERS & set(each.words[-1:]))
    return is_described and names_one and not says("optional", each.text)


def _foreign_schema(subject: Subject, _: Settings) -> Iterator[Noticed]:
    schema = subject.written.get(definitions.schema_key(subject.written))
    if not isinstance(schema, dict) or subject.fault:
        return
    if spelled := foreign_words(schema):
        yield Noticed(
            f"its schema is not JSON Schema 2020-12: {', '.join(spelled)}",
            "Write type names and keywords as JSON Schema has them; `--fix` does.",
        )


_TYPES = table("object array string number integer boolean null")


def foreign_words(schema: Schema) -> Sequence[str]:
    """Return the words of a schema that JSON Schema 2020-12 does not have; they are translated when it is read."""
    return sorted({word for part in walk(schema) for word in _foreign_words(part)})


def _foreign_words(part: Mapping[str, Json]) -> Iterator[str]:
    types = part.get("type")
    for name in types if isinstance(types, list) else [types]:
        if name is not None and name not in _TYPES:
            yield f"type {name!r}"
    if isinstance(part.get("required"), bool):
        yield "`required` at a property"
    if "nullable" in part:
        yield "`nullable`"
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(part.get(bound), bool):
            yield f"`{bound}` as a boolean"
    if isinstance(part.get("items"), list):
        yield "a list of `items`"


# ---------------------------------------------------------------------- the table

_ID = 'Number of the order, such as "A-1042".'


def _refund(**parameters: Json) -> dict[str, Json]:
    return define(
        "refund_order",
        "Pay an order back. Returns the number of the payment.",
        required=[*parameters],
        **parameters,
    )


def _nest(levels: int) -> Json:
    if levels == 0:
        return {"type": "string", "description": "City of the customer, such as Lyon."}
    return {
        "type": "object",
        "description": "What belongs together.",
        "properties": {"inner": _nest(levels - 1)},
    }


def _switch(text: str) -> Json:
    return {"type": "boolean", "description": text}


def _number(text: str) -> Json:
    return {"type": "number", "description": text}


RULES = (
    Rule(
        "parameter-undocumented", "warning", "a parameter has no description", look=_find_undocumented,
        bad=[_refund(order_id={"type": "string"})], good=[_refund(order_id=_ID)],
    ),
    Rule(
        "parameter-restates-name", "note", "the text of a parameter says no more than its name", look=_restates,
        bad=[_refund(order_id="The order ID.")], good=[_refund(order_id=_ID)],
    ),
    Rule(
        "parameter-name-empty", "warning", "the name of a parameter says nothing", look=_empty_name,
        bad=[_refund(q=_ID), _refund(data="The data.")], good=[_refund(order_id=_ID)],
    ),
    Rule(
        "too-many-parameters", "warning", "it has more parameters than a model fills reliably", look=_too_many,
        bad=[_refund(**{f"note_{n}": f"Line {n} of the note on the receipt." for n in range(8)})],
        good=[_refund(order_id=_ID, note="What is printed on the receipt.")],
    ),
    Rule(
        "nesting-deep", "warning", "its arguments are nested too deep", look=_too_deep,
        bad=[_refund(receiver=_nest(4))], good=[_refund(receiver_city=_nest(0))],
    ),
    Rule(
        "unit-missing", "warning", "a number has no unit", look=_unit_missing,
        bad=[_refund(order_id=_ID, amount=_number("How much is paid back.")),
             _refund(timeout=_number("等待的最长时间。"))],
        good=[_refund(order_id=_ID, amount=_number("How much is paid back, in euros.")),
              _refund(timeout_s=_number("How long to wait."))],
    ),
    Rule(
        "format-missing", "warning", "a text of some form has neither form nor example", look=_form_missing,
        bad=[_refund(order_id=_ID, due_date="When the money must be there.")],
        good=[
            _refund(order_id=_ID, due_date="When the money must be there, as YYYY-MM-DD."),
            _refund(due_date={"type": "string", "format": "date", "description": "When the money must be there."}),
        ],
    ),
    Rule(
        "shape-unknown", "warning", "a parameter does not say what it may hold", look=_shape_unknown,
        bad=[_refund(order_id=_ID, options={"type": "object", "description": "Further settings."}),
             _refund(lines={"type": "array", "description": "What to pay back."})],
        good=[
            _refund(lines={"type": "array", "items": {"type": "integer"}, "description": "Lines to pay back, from 1."}),
            _refund(options={"type": "object", "description": 'Further settings, such as {"silent": true}.'}),
        ],
    ),
    Rule(
        "booleans-contradict", "warning", "two booleans contradict each other", look=_contradicting,
        bad=[_refund(notify_on=_switch("Write to the customer."), notify_off=_switch("Do not write to them."))],
        good=[_refund(notify=_switch("Whether to write to the customer."), express=_switch("Pay today."))],
    ),
    Rule(
        "enum-hidden", "warning", "a free text has its allowed values in the description only", look=_find_enum_in_text,
        bad=[_refund(order_id=_ID, reason="Why: one of damaged, late or unwanted."),
             _refund(reason="原因，可选值：damaged、late")],
        good=[
            _refund(order_id=_ID,
                    reason={"type": "string", "enum": ["damaged", "late"], "description": "Why: damaged or late."}),
            _refund(order_id=_ID, reason="Why, for example damaged, late or unwanted."),
        ],
    ),
    Rule(
        "caller-id", "warning", "the model fills in what the caller knows", look=_caller_id,
        bad=[_refund(order_id=_ID, tenant_id="The tenant."), _refund(order_id=_ID, api_key="Key of the bank.")],
        good=[
            _refund(order_id=_ID),
            define("get_user", "Look a user up by number.", required=["user_id"], user_id="Such as 17."),
        ],
    ),
    Rule(
        "required-missing", "warning", "it requires nothing, though it cannot do without", look=_requires_nothing,
        bad=[define("get_order", "Look an order up.", order_id=_ID)],
        good=[
            define("get_order", "Look an order up.", required=["order_id"], order_id=_ID),
            define("get_orders", "List the orders of a month.", customer_id="Only of this customer; all if omitted."),
        ],
    ),
    Rule(
        "required-unknown", "error", "it requires a parameter that is not described", look=_unknown_required,
        bad=[define("get_order", "Look an order up.", required=["id"], order_id=_ID)],
        good=[define("get_order", "Look an order up.", required=["order_id"], order_id=_ID)],
    ),
    Rule(
        "required-contradicted", "warning", "text and schema differ on what is required", look=_requirement_differs,
        bad=[
            _refund(order_id=_ID, note="Optional line on the receipt."),
            define("get_order", "Look an order up.", order_id="Required. Number of the order."),
        ],
        good=[define("get_order", "Look an order up.", required=["order_id"], order_id=_ID, note="Optional remark.")],
    ),
    Rule(
        "schema-foreign", "warning", "its schema is spelled as no provider reads it",
        look=_foreign_schema, is_fixable=True,
        bad=[{"name": "get_order", "description": "Look an order up.",
              "parameters": {"type": "dict", "properties": {"order_id": {"type": "str", "description": _ID}}}}],
        good=[define("get_order", "Look an order up.", required=["order_id"], order_id=_ID)],
    ),
)  # fmt: skip
