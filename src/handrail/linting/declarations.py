"""Rules about what a tool declares of its effect, and whether it may be believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handrail.effects import EffectClass
from handrail.errors import Json
from handrail.linting.findings import Settings
from handrail.linting.rule import Definition, Noticed, Rule, define
from handrail.linting.subjects import Declared, Subject
from handrail.linting.texts import words
from handrail.schemas.walk import split_words as table
from handrail.tools import destinations
from handrail.tools.tool import BaseTool

_DESTROYS = table(
    "delete drop purge destroy erase wipe truncate uninstall terminate 删除 清空 销毁 卸载 注销"
)
_CHANGES = _DESTROYS | table(
    "create update insert write send post put patch set add remove cancel restart refund pay transfer rename "
    "move upload publish merge enable disable reset approve replace "
    "创建 新建 更新 修改 发送 添加 移除 取消 重启 支付 退款 上传"
)


def _list_acts(subject: Subject) -> set[str]:
    """Return the words that name the act of a tool.

    That is its first word, or the second behind the name of a service (`zia_delete_location`). At the end, where many
    act words are nouns (`last_update`, `blog_post`), only what can be nothing else counts: `pods_delete`.
    """
    parts = [word for word in words(subject.name) if not word.isdigit()]
    first = parts[:2] if len(parts) > 2 else parts[:1]
    return {*first, *(_DESTROYS & set(parts[-1:]))}


def _find_undeclared(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared is None or declared.effect is not None or declared.form == "openapi":
        return
    likely = _guess_effect(subject)
    if declared.form == "mcp":
        yield _ask_for_hints(declared, likely)
    else:
        yield _ask_for_effect(subject.tool, likely)


def _ask_for_hints(declared: Declared, likely: EffectClass | None) -> Noticed:
    message = (
        declared.note
        or "declares no hints, so every client must take it for a destructive write"
    )
    rewrite = f'"annotations": {_HINTS[likely]}' if likely else _EVERY_HINT
    return Noticed(message, rewrite)


def _ask_for_effect(tool: BaseTool | None, likely: EffectClass | None) -> Noticed:
    message = "declares no effect, so it counts as a write: no retry, one result for equal calls"
    if tool is not None and tool.by_schema and not tool.risk:
        message += "; and of high risk, since a schema describes it: a person is asked about each call"
    if likely:
        return Noticed(message, f'effect="{likely}", by its name')
    return Noticed(message, 'effect="read", "write" or "destructive".')


_HINTS: Mapping[EffectClass, str] = {
    "read": '{"readOnlyHint": true}, by its name.',
    "write": '{"readOnlyHint": false, "destructiveHint": false}, by its name, if it can be undone.',
    "destructive": '{"readOnlyHint": false, "destructiveHint": true}, by its name.',
}
_EVERY_HINT = (
    f'"annotations": {_HINTS["read"].partition(",")[0]} for a read; '
    'else say "destructiveHint": true or false.'
)


def _guess_effect(subject: Subject) -> EffectClass | None:
    """Return the effect that the name speaks of; None where it speaks of none, or of two."""
    acts = _list_acts(subject)
    by_effect: dict[EffectClass, bool] = {
        "read": bool(acts & _LOOKS),
        "write": bool(acts & (_CHANGES - _DESTROYS)),
        "destructive": bool(acts & _DESTROYS),
    }
    effects = [effect for effect, is_named in by_effect.items() if is_named]
    return effects[0] if len(effects) == 1 else None


def _find_contradiction(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared is None or declared.effect in (None, "destructive"):
        return
    acts = _list_acts(subject)
    if declared.effect == "read" and (changes := acts & _CHANGES) and not acts & _LOOKS:
        yield Noticed(
            f"is declared a read, and its name says `{min(changes)}`: it would be repeated freely and asks nobody",
            'effect="write" (in MCP: "readOnlyHint": false), or a name that says what is read.',
        )
    elif declared.effect == "write" and (changes := acts & _DESTROYS):
        yield Noticed(
            f"is declared a write that can be undone, and its name says `{min(changes)}`",
            'effect="destructive" (in MCP: "destructiveHint": true), so that a person is asked.',
            severity="warning",
        )


_LOOKS = table(
    "get list search find read show check count preview validate lookup diff retrieve fetch describe query "
    "查询 获取 列出 查看 搜索"
)


def _find_missing_key(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if (
        declared
        and declared.form == "handrail"
        and declared.effect in ("write", "destructive")
        and not declared.recognizes_repeats
    ):
        required = (each.name for each in subject.own_parameters if each.required)
        key = f"{subject.name}:{{{next(required, '…')}}}"
        yield Noticed(
            "is a write without a key: in another run, or after a crash, the same act looks like a new one",
            f'key="{key}", or `verify` where it can be asked whether it happened.',
        )


def _find_missing_destination(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared is None or declared.destinations is None or declared.destinations:
        return
    if declared.egress is False or not (declared.egress or declared.effect == "write"):
        return
    sends = destinations.SENDS | destinations.SENDS_IN_CHINESE
    if declared.egress or _list_acts(subject) & sends:
        yield Noticed(
            "sends something, and none of its arguments says where by its name: a run that has read a stranger's words "
            "may send it anywhere unasked",
            'sends=hr.Sends(destination="…"), the argument that says where; `()` if it always goes to the same place.',
        )


def _find_foreign_answer(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if subject.declared and subject.declared.has_foreign_answer:
        yield Noticed(
            "is a write whose answer counts as a stranger's words: after it, a run asks before it sends something to "
            "where nobody has named",
            'sends=hr.Sends(trust="trusted") if only you write what it answers; else trust="untrusted".',
        )


def _find_unasked(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared and declared.effect == "destructive" and not declared.asks:
        yield Noticed(
            "is destructive, and its lowered risk means that nobody is asked",
            'approve=True, a condition (`approve="count > 10"`), or leave `risk` as it is.',
        )


_TENANTS = table(
    "tenant org organization organisation workspace company customer user uid "
    "租户 组织 公司 客户 用户 企业"
)
_OF_NAMES = table("id name key slug code number current 编号 名称 当前")


def _find_shared_names(subject: Subject, _: Settings) -> Iterator[Noticed]:
    """Find keys and resources that are the same for all tenants, though the tool knows for whom it is called."""
    declared = subject.declared
    if declared is None or declared.form != "handrail":
        return
    tenants = [name for name in declared.injected if _names_tenant(name)]
    if not tenants:
        return
    for setting, template in (("key", declared.key), ("resource", declared.resource)):
        looks_at = declared.looks_at.get(setting)
        if looks_at is None or not set(tenants).isdisjoint(looks_at):
            continue
        yield Noticed(
            f"its `{setting}` does not name the injected `{tenants[0]}`: {_SHARED[setting]}",
            f"{_name_tenant(setting, template, tenants[0])}; ignore this where each tenant has a `scope`.",
        )
    if declared.finds_repeats and not declared.looks_at:
        yield Noticed(
            f"an equal call counts as a repeat, also for another `{tenants[0]}`, who reads the first one's result",
            f'key="{subject.name}:{{{tenants[0]}}}:…"; ignore this where each tenant has a `scope`.',
        )


_SHARED = {
    "key": "equal calls for two of them are one write, and the second reads the first one's result",
    "resource": "calls for two of them wait for each other",
}


def _names_tenant(name: str) -> bool:
    """Whether a parameter is a tenant or a user, such as `tenant`, `org_id`, `current_user`; not `user_agent`."""
    parts = set(words(name))
    return bool(parts & _TENANTS) and parts <= _TENANTS | _OF_NAMES


def _name_tenant(setting: str, template: str, tenant: str) -> str:
    """Return the setting with the tenant before its first field."""
    if not template:
        return f"Let the function of `{setting}` take `{tenant}`, too"
    before, brace, after = template.partition("{")
    separator = ":" if brace else ""
    if not brace and not before.endswith(":"):
        before += ":"
    return f'{setting}="{before}{{{tenant}}}{separator}{brace}{after}"'


def _tool(name: str, description: str, **declared: Json) -> Definition:
    definition = define(
        name,
        description,
        required=["order_id"],
        order_id='Number of the order, such as "A-1042".',
    )
    return {**definition, **declared}


def _find_refused_model(subject: Subject, _: Settings) -> Iterator[Noticed]:
    if subject.declared is not None and "direct" not in subject.declared.callers:
        yield Noticed(
            "only a program may call it: where the provider runs none, the model is shown it and each of its calls is "
            "refused",
            'limits=hr.Limits(callers=["direct", "program"]), or show it only to models whose `Options.provider_tools` '
            "run programs.",
        )


_DELETE = "Delete an order for good. Returns nothing."
_REFUND = "Pay an order back, once. Returns the number of the payment."

RULES = (
    Rule(
        "effect-undeclared", "warning", "it does not declare whether it changes anything", look=_find_undeclared,
        bad=[_tool("get_order", "Look an order up.", annotations={}),
             _tool("refund", _REFUND, key="refund:{order_id}")],
        good=[
            _tool("get_order", "Look an order up.", annotations={"readOnlyHint": True}),
            _tool("refund", _REFUND, effect="write", key="refund:{order_id}"),
            # OpenAI's and Anthropic's definitions have no place for it
            _tool("refund", _REFUND),
        ],
    ),
    Rule(
        "effect-contradicted", "error", "its name says another effect than it declares", look=_find_contradiction,
        bad=[_tool("delete_order", _DELETE, effect="read"),
             _tool("delete_order", _DELETE, annotations={"readOnlyHint": True})],
        good=[
            _tool("delete_order", _DELETE, effect="destructive", key="delete:{order_id}"),
            _tool("list_deleted_orders", "List what was deleted.", effect="read"),
            _tool("last_update", "Say when an order last changed.", effect="read"),
        ],
    ),
    Rule(
        "write-without-key", "warning", "it is a write whose repetition looks like a new one", look=_find_missing_key,
        bad=[_tool("refund", _REFUND, effect="write")],
        good=[_tool("refund", _REFUND, effect="write", key="refund:{order_id}"),
              _tool("get_order", "Look an order up.", effect="read")],
    ),
    Rule(
        "tenant-not-named", "warning", "its key or resource is the same for all tenants", look=_find_shared_names,
        bad=[_tool("refund", _REFUND, effect="write", key="refund:{order_id}", injected=["tenant"]),
             _tool("refund", _REFUND, effect="write", key="refund:{org_id}:{order_id}", injected=["org_id"],
                   resource="order:{order_id}")],
        good=[
            _tool("refund", _REFUND, effect="write", key="refund:{tenant}:{order_id}", injected=["tenant"]),
            _tool("refund", _REFUND, effect="write", key="refund:{order_id}", injected=["user_agent", "session"]),
        ],
    ),
    Rule(
        "destination-unknown", "warning", "it sends something, and nobody knows by which argument",
        look=_find_missing_destination,
        bad=[_tool("send_receipt", "Send the receipt of an order.", effect="write", key="receipt:{order_id}")],
        good=[
            _tool("send_receipt", "Send the receipt of an order.", effect="write", key="receipt:{order_id}",
                  sends={"destination": []}),
            _tool("send_receipt", "Send the receipt of an order.", effect="write", key="receipt:{order_id}",
                  sends={"egress": False}),
        ],
    ),
    Rule(
        "answer-untrusted", "note", "it is a write, and nobody has declared who writes its answer",
        look=_find_foreign_answer,
        bad=[_tool("refund", _REFUND, effect="write", key="refund:{order_id}")],
        good=[_tool("refund", _REFUND, effect="write", key="refund:{order_id}", sends={"trust": "trusted"}),
              _tool("get_order", "Look an order up.", effect="read")],
    ),
    Rule(
        "destructive-unasked", "error", "it is destructive and asks nobody", look=_find_unasked,
        bad=[_tool("delete_order", _DELETE, effect="destructive", risk="low")],
        good=[
            _tool("delete_order", _DELETE, effect="destructive", key="delete:{order_id}"),
            _tool("delete_order", _DELETE, effect="destructive", key="delete:{order_id}", risk="low", approve=True),
        ],
    ),
    Rule(
        "direct-call-refused", "note", "only a program may call it", look=_find_refused_model,
        bad=[_tool("get_order", "Look an order up.", effect="read", limits={"callers": ["program"]})],
        good=[_tool("get_order", "Look an order up.", effect="read", limits={"callers": ["direct", "program"]})],
    ),
)  # fmt: skip
