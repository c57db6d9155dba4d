"""What the scripted model of the demo says, with the mistakes that models make.

turn 1  two calls at once; one hangs and is retried
turn 2  arguments that are no JSON
turn 3  a value that the tool does not accept, 4 corrected
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


class Texts(Struct, frozen=True):
    """All texts of the demo in one language.

    Attributes:
        captions: What to watch for, by turn.
        failed: The answer after a restart that failed; `{why}` is the code.
        restarted: How often the service was restarted; `{times}` is the number, `{s}` the ending of a plural.
        files: What to read next, and what is in it.
    """

    scripted: str
    real: str
    unattended: str
    at_console: str
    approver: str
    captions: Mapping[int, str]
    question: str
    system: str
    looking: str
    reason: str
    answer: str
    denied: str
    failed: str
    restarted: str
    saved: str
    to_read: str
    files: Mapping[str, str]


TEXTS: Mapping[Language, Texts] = {
    "zh": Texts(
        scripted=(
            "模型由脚本扮演，通过本机上一个真实的 HTTP 服务器应答。数据不会离开本机，也不需要密钥。\n"
            "集群是在本进程里模拟的。两者之间的一切都由 handrail 负责，与生产环境相同。"
        ),
        real="模型是 {model}。集群是在本进程里模拟的，不会真的重启任何服务。",
        unattended="当前无人可以审批（没有终端，或使用了 --no-input），演示程序会自行批准重启。",
        at_console="当前没有终端可以询问，重启会等您在控制台里批准或拒绝。",
        approver="演示程序（不是真人）",
        captions={
            1: "一次回答里的两个调用并行执行。其中一个没有响应，超时即被终止；只读调用会自动重试。",
            2: "模型写出的参数不是合法的 JSON。对只读调用，参数会被修复，并逐项注明做了哪些修复。",
            3: "参数取值不在允许范围内。模型会得知允许哪些取值……",
            4: "……并自行更正。",
            5: "重启属于破坏性操作，风险高，必须由人批准。",
            6: "无论批准与否，模型都会得知结果，并据此继续。",
            7: "模型看到处理效果后，给出回答。",
        },
        question="api-gateway 很慢，为什么？",
        system=f"你是值班工程师的助手。先查日志和指标，再下结论。{SERVICE} 的 pod 是 {POD}。",
        looking="我先同时看日志和指标。",
        reason="连接池泄漏，P99 延迟 2.81 秒",
        answer=(
            "原因：14:02 重载配置后，旧连接池的 256 个连接没有释放，连接池 512/512 耗尽，请求排队，"
            "P99 延迟升到 2.81 秒；CPU 使用率只有 31%，并非瓶颈。\n"
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
        restarted="在模拟集群里，api-gateway 被重启了 {times} 次。",
        saved="这次运行已保存，可以这样查看：",
        to_read="建议阅读的五个文件：",
        files={
            "src/handrail/core/execution.py": "一次调用的全过程，安全正是由其中的顺序保证的",
            "src/handrail/effects.py": "这一过程会请求哪些操作，可能得到哪些结果",
            "src/handrail/core/batch.py": "同一次回答里的多个调用如何一起推进",
            "src/handrail/engine/executor.py": "由谁来执行这一切",
            "src/handrail/cli/demo/cluster.py": "本演示所用的工具",
        },
    ),
    "en": Texts(
        scripted=(
            "The model is a script behind a real HTTP server on this machine. Nothing leaves it; no key is needed.\n"
            "The cluster is a stand-in in this process. Everything between the two is handrail, as in production."
        ),
        real="The model is {model}. The cluster is a stand-in in this process; nothing real is restarted.",
        unattended="There is nobody to ask (no terminal, or --no-input), so the demo approves the restart by itself.",
        at_console="There is no terminal to ask at: the restart waits for your answer in the console.",
        approver="the demo itself, not a person",
        captions={
            1: "Two calls in one answer run side by side. One hangs until its deadline; a read is retried.",
            2: "The arguments are not JSON. For a read they are repaired, and each repair is named.",
            3: "A value that the tool does not accept. The model learns which ones it does ...",
            4: "... and corrects itself.",
            5: "A restart is destructive: its risk is high, and a person must approve it.",
            6: "The model learns what was decided, and continues from there.",
            7: "The model has seen the effect, and answers.",
        },
        question="api-gateway is slow. Why?",
        system=(
            "You assist the engineer on call. Look at logs and metrics before you conclude. "
            f"The pod of {SERVICE} is {POD}."
        ),
        looking="I am looking at the logs and the metrics together.",
        reason="connection pool leaks, P99 latency 2.81 s",
        answer=(
            "Cause: since the config reload at 14:02, 256 connections of the old pool were never closed. "
            "The pool is full (512/512), so requests queue and P99 latency is 2.81 s. CPU, at 31%, is no bottleneck.\n"
            "Done: api-gateway was restarted with approval; P99 latency is down to 0.09 s.\n"
            "Next: fix the leak in the config reload, or this comes back."
        ),
        denied=(
            "Cause: since the config reload at 14:02, 256 connections of the old pool were never closed. "
            "The pool is full (512/512), and P99 latency is 2.81 s.\n"
            "The restart was not approved, so I did not restart it, and it is still slow. "
            "Next: fix the leak in the config reload."
        ),
        failed=(
            "Cause: since the config reload at 14:02, 256 connections of the old pool were never closed. "
            "The pool is full (512/512), and P99 latency is 2.81 s.\n"
            "The restart did not happen ({why}), and it is still slow. Next: fix the leak in the config reload."
        ),
        restarted="In the stand-in cluster, api-gateway was restarted {times} time{s}.",
        saved="The run is stored; look at it: ",
        to_read="Five files to read:",
        files={
            "src/handrail/core/execution.py": "how one call is carried out, in the order that makes it safe",
            "src/handrail/effects.py": "what one call asks for, and the possible answers",
            "src/handrail/core/batch.py": "the calls of one answer, advanced together",
            "src/handrail/engine/executor.py": "who performs all this",
            "src/handrail/cli/demo/cluster.py": "the tools of this demo",
        },
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
        _turn(
            ToolCall(
                "call_logs_2", "get_pod_logs", f"{{'pod': '{POD}', 'tail_lines': 20,}}"
            )
        ),
        call("get_pod_metrics", pod=POD, metric="latency"),
        call("get_pod_metrics", pod=POD, metric="latency_p99"),
        call("restart_service", service=SERVICE, reason=texts.reason),
        partial(_after_restart, texts),
        texts.answer,
    ]


def _after_restart(texts: Texts, messages: Sequence[Message]) -> Line:
    """Check whether the restart helped, unless a person denied it or edited it into one that failed."""
    last = messages[-1]
    code = _error_code(last) if isinstance(last, ToolMessage) else ""
    if code == Code.NOT_APPROVED:
        return texts.denied
    if code:
        return texts.failed.format(why=code)
    return call("get_pod_metrics", pod=POD)


def _error_code(message: ToolMessage) -> str:
    try:
        document = json.loads(message.result.text)
    except ValueError:
        return ""
    if isinstance(document, dict):
        return str(document.get("error_code", ""))
    return ""


def _turn(*calls: ToolCall, text: str = "") -> Turn:
    return Turn(
        text,
        calls=calls,
        finish="calls",
        usage=Usage(100, 20),
    )
