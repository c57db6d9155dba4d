"""Rules about what a tool declares of its effect, and whether it may be believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handrail.effects import EffectClass
from handrail.errors import Json
from handrail.linting.findings import Settings
from handrail.linting.rules import Definition, Noticed, Rule, define
from handrail.linting.subjects import Subject
from handrail.linting.texts import words
from handrail.schemas.walk import split_words as table

_DESTROYS = table(
    "delete drop purge destroy erase wipe truncate uninstall terminate 删除 清空 销毁 卸载 注销"
)
_CHANGES = _DESTROYS | table(
    "create update insert write send post put patch set add remove cancel restart refund pay transfer rename "
    "move upload publish merge enable disable reset approve replace "
    "创建 新建 更新 修改 发送 添加 移除 取消 重启 支付 退款 上传"
)


def _acts(subject: Subject) -> set[str]:
    """Return the words at which a name says its act.

    That is its first word, or the second behind the name of a service (`zia_delete_location`). At the end, where many
    act words are nouns (`last_update`, `blog_post`), only what can be nothing else counts: `pods_delete`.
    """
    told = [word for word in words(subject.name) if not word.isdigit()]
    return {*told[: 2 if len(told) > 2 else 1], *(_DESTROYS & set(told[-1:]))}


def _undeclared(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared is None or declared.effect is not None or declared.form == "openapi":
        return
    likely = _likely_effect(subject)
    if declared.form == "mcp":
        told = (
            declared.note
            or "declares no hints, so every client must take it for a destructive write"
        )
        yield Noticed(
            told, f'"annotations": {_HINTS[likely]}' if likely else _EVERY_HINT
        )
    else:
        told = "declares no effect, so it counts as a write: no retry, one result for equal calls"
        if (
            subject.tool is not None
            and subject.tool.by_schema
            and not subject.tool.risk
        ):
            told += "; and of high risk, since a schema describes it: a person is asked about each call"
        yield Noticed(
            told,
            f'effect="{likely}", by its name'
            if likely
            else 'effect="read", "write" or "destructive".',
        )


_HINTS: Mapping[EffectClass, str] = {
    "read": '{"readOnlyHint": true}, by its name.',
    "write": '{"readOnlyHint": false, "destructiveHint": false}, by its name, if it can be undone.',
    "destructive": '{"readOnlyHint": false, "destructiveHint": true}, by its name.',
}
_EVERY_HINT = (
    f'"annotations": {_HINTS["read"].partition(",")[0]} for a read; '
    'else say "destructiveHint": true or false.'
)


def _likely_effect(subject: Subject) -> EffectClass | None:
    """Say which effect the name speaks of; None where it speaks of none, or of two."""
    acts = _acts(subject)
    spoken: dict[EffectClass, bool] = {
        "read": bool(acts & _LOOKS),
        "write": bool(acts & (_CHANGES - _DESTROYS)),
        "destructive": bool(acts & _DESTROYS),
    }
    told = [effect for effect, is_spoken in spoken.items() if is_spoken]
    return told[0] if len(told) == 1 else None


def _contradicted(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared is None or declared.effect in (None, "destructive"):
        return
    acts = _acts(subject)
    if declared.effect == "read" and (found := acts & _CHANGES) and not acts & _LOOKS:
        yield Noticed(
            f"is declared a read, and its name says `{min(found)}`: it would be repeated freely and asks nobody",
            'effect="write" (in MCP: "readOnlyHint": false), or a name that says what is read.',
        )
    elif declared.effect == "write" and (found := acts & _DESTROYS):
        yield Noticed(
            f"is declared a write that can be undone, and its name says `{min(found)}`",
            'effect="destructive" (in MCP: "destructiveHint": true), so that a person is asked.', "warning",
        )  # fmt: skip


_LOOKS = table(
    "get list search find read show check count preview validate lookup diff retrieve fetch describe query "
    "查询 获取 列出 查看 搜索"
)


def _without_key(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if (
        declared
        and declared.form == "handrail"
        and declared.effect in ("write", "destructive")
        and not declared.is_told_apart
    ):
        first = next(
            (each.name for each in subject.own_parameters if each.required), ""
        )
        key = f"{subject.name}:{{{first}}}" if first else f"{subject.name}:{{…}}"
        yield Noticed(
            "is a write without a key: in another run, or after a crash, the same act cannot be told from a new one",
            f'key="{key}", or `verify` where it can be asked whether it happened.',
        )


def _unasked(subject: Subject, _: Settings) -> Iterator[Noticed]:
    declared = subject.declared
    if declared and declared.effect == "destructive" and not declared.asks:
        yield Noticed(
            "is destructive, and its lowered risk means that nobody is asked",
            'approve=True, a condition (`approve="count > 10"`), or leave `risk` as it is.',
        )


def _tool(name: str, description: str, **declared: Json) -> Definition:
    made = define(
        name,
        description,
        required=["order_id"],
        order_id='Number of the order, such as "A-1042".',
    )
    return {**made, **declared}


_DELETE = "Delete an order for good. Returns nothing."
_REFUND = "Pay an order back, once. Returns the number of the payment."

RULES = (
    Rule(
        "effect-undeclared", "warning", "it does not declare whether it changes anything", look=_undeclared,
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
        "effect-contradicted", "error", "its name says another effect than it declares", look=_contradicted,
        bad=[_tool("delete_order", _DELETE, effect="read"),
             _tool("delete_order", _DELETE, annotations={"readOnlyHint": True})],
        good=[
            _tool("delete_order", _DELETE, effect="destructive", key="delete:{order_id}"),
            _tool("list_deleted_orders", "List what was deleted.", effect="read"),
            _tool("last_update", "Say when an order last changed.", effect="read"),
        ],
    ),
    Rule(
        "write-without-key", "warning", "it is a write that cannot be told from its repetition", look=_without_key,
        bad=[_tool("refund", _REFUND, effect="write")],
        good=[_tool("refund", _REFUND, effect="write", key="refund:{order_id}"),
              _tool("get_order", "Look an order up.", effect="read")],
    ),
    Rule(
        "destructive-unasked", "error", "it is destructive and asks nobody", look=_unasked,
        bad=[_tool("delete_order", _DELETE, effect="destructive", risk="low")],
        good=[
            _tool("delete_order", _DELETE, effect="destructive", key="delete:{order_id}"),
            _tool("delete_order", _DELETE, effect="destructive", key="delete:{order_id}", risk="low", approve=True),
        ],
    ),
)  # fmt: skip
