"""What the scripted model of the demo says, with the mistakes that models make.

turn 1  two calls at once; one hangs and is tried again
turn 2  arguments that are no JSON
turn 3  a value that the tool does not know, 4 corrected
turn 5  a restart, which a person must approve
turn 6  a look at the result, 7 the answer
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.cli.demo.cluster import POD, SERVICE
from handrail.errors import Code
from handrail.messages import Message, ToolMessage, Turn, Usage
from handrail.testing import Line, call

Language: TypeAlias = Literal["zh", "en"]

CAPTIONS: Mapping[int, str] = {
    1: "Two calls in one answer run side by side. One hangs: its deadline ends it, and a read is tried again.",
    2: "The model writes arguments that are not JSON. For a read they are mended, and each repair has a name.",
    3: "A value that the tool does not know. The model is told what is allowed ...",
    4: "... and corrects itself.",
    5: "A restart is destructive, so its risk is high, so a person must agree.",
    6: "Whatever was decided, the model is told, and goes on from there.",
    7: "It has seen what came of it, and answers.",
}
"""What to watch for, by turn."""


class Texts(Struct, frozen=True):
    """Everything that is said in one language."""

    question: str
    system: str
    looking: str
    reason: str
    answer: str
    denied: str
    failed: str


TEXTS: Mapping[Language, Texts] = {
    "zh": Texts(
        question="api-gateway 很慢，为什么？",
        system=f"你是值班工程师的助手。先查日志和指标，再下结论。{SERVICE} 的 pod 是 {POD}。",
        looking="我先同时看日志和指标。",
        reason="连接池泄漏，P99 延迟 2.81 秒",
        answer=(
            "原因：14:02 重载配置后，旧连接池的 256 个连接没有释放，连接池 512/512 耗尽，请求排队，"
            "P99 延迟升到 2.81 秒；CPU 只有 31%，不是算力问题。\n"
            "处理：经批准已重启 api-gateway，P99 延迟降到 0.09 秒。\n"
            "建议：修复重载配置时的连接泄漏，否则会再次发生。"
        ),
        denied=(
            "原因：14:02 重载配置后，旧连接池的 256 个连接没有释放，连接池 512/512 耗尽，"
            "P99 延迟升到 2.81 秒。\n"
            "重启没有得到批准，所以我没有重启，服务仍然很慢。建议：修复重载配置时的连接泄漏。"
        ),
        failed=(
            "原因：14:02 重载配置后，旧连接池的 256 个连接没有释放，连接池 512/512 耗尽，"
            "P99 延迟升到 2.81 秒。\n"
            "重启没有成功（{why}），服务仍然很慢。建议：修复重载配置时的连接泄漏。"
        ),
    ),
    "en": Texts(
        question="api-gateway is slow. Why?",
        system=(
            "You assist the engineer on call. Look at logs and metrics before you conclude. "
            f"The pod of {SERVICE} is {POD}."
        ),
        looking="I look at logs and metrics at once.",
        reason="connection pool leaks, P99 latency 2.81 s",
        answer=(
            "Cause: since the config reload at 14:02, 256 connections of the old pool were never closed. "
            "The pool ran full (512/512), requests queue, P99 latency is 2.81 s. CPU is at 31%: it is not too small.\n"
            "Done: api-gateway was restarted with approval; P99 latency is down to 0.09 s.\n"
            "Next: mend the leak in the config reload, or this comes back."
        ),
        denied=(
            "Cause: since the config reload at 14:02, 256 connections of the old pool were never closed. "
            "The pool ran full (512/512), P99 latency is 2.81 s.\n"
            "The restart was not approved, so I did not restart it, and it is still slow. "
            "Next: mend the leak in the config reload."
        ),
        failed=(
            "Cause: since the config reload at 14:02, 256 connections of the old pool were never closed. "
            "The pool ran full (512/512), P99 latency is 2.81 s.\n"
            "The restart did not happen ({why}), and it is still slow. Next: mend the leak in the config reload."
        ),
    ),
}


def script(language: Language) -> list[Line]:
    """Return the model's answers, in order."""
    texts = TEXTS[language]
    return [
        _turn(
            call("get_pod_logs", pod=POD, tail_lines=3),
            call("get_pod_metrics", pod=POD),
            text=texts.looking,
        ),
        # Python instead of JSON: single quotes and a trailing comma, as smaller models write it.
        _turn(ToolCall("call_logs_2", "get_pod_logs", f"{{'pod': '{POD}', 'tail_lines': 20,}}")),
        call("get_pod_metrics", pod=POD, metric="latency"),
        call("get_pod_metrics", pod=POD, metric="latency_p99"),
        call("restart_service", service=SERVICE, reason=texts.reason),
        partial(_after_restart, texts),
        texts.answer,
    ]


def _after_restart(texts: Texts, messages: Sequence[Message]) -> Line:
    """Check whether the restart helped, unless a person denied it or edited it into one that failed."""
    last = messages[-1]
    code = _code_of(last) if isinstance(last, ToolMessage) else ""
    if code == Code.NOT_APPROVED:
        return texts.denied
    if code:
        return texts.failed.format(why=code)
    return call("get_pod_metrics", pod=POD)


def _code_of(message: ToolMessage) -> str:
    try:
        told = json.loads(message.result.text)
    except ValueError:
        return ""
    if isinstance(told, dict):
        return str(told.get("error_code", ""))
    return ""


def _turn(*calls: ToolCall, text: str = "") -> Turn:
    return Turn(
        text,
        calls=calls,
        finish="calls",
        usage=Usage(100, 20),
    )
