"""People are told of questions that wait for them: by a function, by mail, by a service."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import handrail as hr
from handrail.engine import shared
from handrail.testing import ScriptedModel, call
from handrail_toolbox.asking import ask_user
from stand_ins.mail import Mailbox
from tests.support.drivers import BOUND_S

CALL = hr.ToolCall("c1", "refund", '{"order": "7"}')


@hr.tool(effect="write", approve=True)
def refund(order: str) -> str:
    """Refund an order."""
    return "refunded"


class Hook:
    """A service that takes notices; `answers` are its first statuses, then 204."""

    def __init__(self, *answers):
        self.taken = []
        self.answers = list(answers)
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.taken.append((dict(self.headers), body))
                self.send_response(hook.answers.pop(0) if hook.answers else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def hook():
    made = []

    def make(*answers):
        made.append(Hook(*answers))
        return made[-1]

    yield make
    for each in made:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_is_told_once_of_each_question(store, is_async):
    told = []

    async def note(question):
        told.append(question)

    notify = note if is_async else told.append
    with hr.SyncRuntime([refund, ask_user], store=store, notify=notify) as runtime:
        for _ in range(2):
            [result] = runtime.calls([CALL], run="t")
            assert not result.ok
        runtime.calls([hr.ToolCall("c2", "ask_user", '{"question": "?"}')], run="t")
        runtime.preview("refund", {"order": "8"}, run="t")
        assert told == runtime.approvals.list()
    assert [each.tool for each in told] == ["refund", "ask_user", "refund"]


def test_nobody_is_told_of_what_was_answered_here(store):
    told = []
    with hr.SyncRuntime(
        [refund], store=store, notify=told.append, approver=lambda asked: True
    ) as runtime:
        assert runtime.calls([CALL], run="t")[0].ok
    assert told == []


def test_whoever_is_told_of_a_tenant_finds_the_question(store):
    told = []
    with hr.SyncRuntime([refund], store=store, notify=told.append) as runtime:
        [result] = runtime.calls([CALL], run="t", scope="acme")
    assert [(each.id, each.run_id) for each in told] == [
        (result.question.id, "@acme/t")
    ]


def test_a_notifier_that_fails_costs_only_its_notice(store, caplog):
    def fail(question):
        raise OSError("no line")

    with hr.SyncRuntime([refund], store=store, notify=fail) as runtime:
        [result] = runtime.calls([CALL], run="t")
        assert runtime.approvals.list() == [result.question]
    assert "nobody was notified of the question" in caplog.text


def test_notifiers_that_hang_keep_no_approver_from_being_asked(store, monkeypatch):
    monkeypatch.setattr(shared, "LONGEST_NOTICE_S", 0.01)
    over = threading.Event()

    def hang(question):
        over.wait(BOUND_S)

    with hr.SyncRuntime([refund], store=store, notify=hang) as runtime:
        for number in range(shared.MAX_APPROVERS_AT_ONCE):
            runtime.calls([CALL], run=f"t{number}")
        [result] = runtime.calls([CALL], run="t", approver=lambda asked: True)
        assert result.ok
        assert not over.is_set()
        over.set()


def test_a_notice_goes_on_when_its_caller_hangs_up(store):
    told = []

    async def hang_up():
        is_asked = asyncio.Event()
        may_go_on = asyncio.Event()

        async def notify(question):
            is_asked.set()
            await may_go_on.wait()
            told.append(question)

        async with hr.Runtime([refund], store=store, notify=notify) as runtime:
            caller = asyncio.create_task(runtime.calls([CALL], run="t"))
            async with asyncio.timeout(BOUND_S):
                await is_asked.wait()
                caller.cancel()
                await asyncio.wait([caller])
                await runtime.calls([CALL], run="t")
                may_go_on.set()

    asyncio.run(hang_up())
    assert len(told) == 1  # closing the runtime waits for it


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_ends_while_its_notifier_hangs(store, is_async, monkeypatch, caplog):
    monkeypatch.setattr(shared, "NOTICE_GRACE_S", 0.0)
    over = threading.Event()
    is_asked = threading.Event()

    def hang(question):
        is_asked.set()
        assert over.wait(BOUND_S)

    async def hang_async(question):
        is_asked.set()
        while not over.is_set():
            await asyncio.sleep(0)

    notify = hang_async if is_async else hang
    model = ScriptedModel([[call("refund", order=str(n)) for n in range(4)], "end"])
    with hr.SyncRuntime([refund], store=store, notify=notify) as runtime:
        assert runtime.run("q", model=model).status == "waiting"
        assert is_asked.wait(BOUND_S)
        assert not over.is_set()
        over.set()
    assert "nobody was notified" not in caplog.text


def test_a_notice_that_is_cut_off_is_logged(store, monkeypatch, caplog):
    monkeypatch.setattr(shared, "NOTICE_GRACE_S", 0.0)

    async def leave_open():
        async def hang(question):
            await asyncio.Event().wait()

        runtime = hr.Runtime([refund], store=store, notify=hang)
        await runtime.calls([CALL], run="t")
        await asyncio.sleep(0)

    asyncio.run(leave_open())
    assert "perhaps nobody was notified of the question" in caplog.text


def test_a_program_that_leaves_its_runtime_open_still_notifies():
    program = """
import threading
import handrail as hr
from handrail.engine import shared
from handrail.testing import ScriptedModel, call

shared.NOTICE_GRACE_S = 0.0

@hr.tool(effect="write", approve=True)
def refund(order: str) -> str:
    return "refunded"

def tell(question):
    threading.main_thread().join()  # the program has come to its end
    print("told", flush=True)

hr.SyncRuntime([refund], notify=tell).call("refund", {"order": "7"}, run="t")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "told\n", done.stderr


def test_a_mail_tells_what_is_asked_and_how_to_answer():
    with Mailbox() as box:
        server = f"server={box.host}&port={box.port}&tls=none"
        notify = (
            f"mail:ops@example.com,anna@example.com?{server}&sender=bot@example.com"
        )
        with hr.SyncRuntime([refund, ask_user], notify=notify) as runtime:
            [result] = runtime.calls([CALL], run="t")
            runtime.calls(
                [hr.ToolCall("c2", "ask_user", '{"question": "颜色?"}')], run="t"
            )
    id = result.question.id
    first, second = box.mails
    assert first["Subject"] == f"refund waits for your approval ({id})"
    assert first["To"] == "ops@example.com, anna@example.com"
    assert f"handrail approvals approve {id}" in first.get_content()
    assert '"order": "7"' in first.get_content()
    assert "颜色?" in second.get_content()
    assert "handrail approvals answer" in second.get_content()


def test_a_service_gets_the_question_signed(hook, monkeypatch):
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    monkeypatch.setenv("HANDRAIL_WEBHOOK_SECRET", secret)
    service = hook()
    with hr.SyncRuntime([refund], notify=f"webhook:{service.url}") as runtime:
        [result] = runtime.calls([CALL], run="t")
    [(headers, body)] = service.taken
    headers = {name.lower(): value for name, value in headers.items()}
    document = json.loads(body)
    assert document["question"] == headers["webhook-id"] == result.question.id
    assert (document["tool"], document["arguments"]) == ("refund", {"order": "7"})
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"k" * 24, signed, hashlib.sha256).digest()
    wanted = f"v1,{base64.b64encode(digest).decode()}"
    assert headers["webhook-signature"] == wanted


def test_a_service_that_fails_gets_the_same_notice_again(hook):
    service = hook(503, 500)
    with hr.SyncRuntime([refund], notify=f"webhook:{service.url}") as runtime:
        runtime.calls([CALL], run="t")
    assert len({headers["webhook-id"] for headers, _ in service.taken}) == 1
    assert len(service.taken) == 3


def test_a_notice_that_a_service_refuses_is_not_sent_again(hook, caplog):
    service = hook(410)
    with hr.SyncRuntime([refund], notify=f"webhook:{service.url}") as runtime:
        runtime.calls([CALL], run="t")
    assert len(service.taken) == 1
    assert "nobody was notified" in caplog.text


@pytest.mark.parametrize(("notify", "sentence"), [
    ("webhook:http://example.com/x", "posted to an https address"),
    ("webhook:", "posted to an https address"),
    ("webhook:https://[x", "cannot be read"),
    ("mail:a@example.com", "a mail notice is given as"),
    ("mail:a@example.com?server=x&sender=b@example.com&colour=red", "cannot be used"),
    ("pigeon:home", "pigeon"),
    (7, "notify is 7"),
])  # fmt: skip
def test_what_is_no_notifier_is_refused_in_one_sentence(notify, sentence):
    with pytest.raises(hr.ConfigError, match=sentence):
        hr.Runtime([refund], notify=notify)


@pytest.mark.parametrize("notify", [
    "webhook:http://example.com/hush",
    "webhook:http://anna:hush@example.com/x",
    "webhook:https://[hush",
    "mail:a@example.com?server=x&sender=b@example.com&password=hush",
])  # fmt: skip
def test_no_part_of_a_place_that_may_be_secret_is_in_its_error(notify):
    with pytest.raises(hr.ConfigError) as refused:
        hr.Runtime([refund], notify=notify)
    assert "hush" not in str(refused.value)


def test_the_path_of_a_webhook_that_refuses_is_in_no_log(hook, caplog):
    service = hook(410)
    with hr.SyncRuntime([refund], notify=f"webhook:{service.url}/hush") as runtime:
        runtime.calls([CALL], run="t")
    assert "nobody was notified" in caplog.text
    assert "hush" not in caplog.text


def test_a_slow_notifier_does_not_hold_up_the_other_calls_of_a_turn(store):
    ended = threading.Event()

    def wait(question):
        assert ended.wait(5)

    @hr.tool(effect="read")
    async def look() -> str:
        """Look."""
        ended.set()
        return "seen"

    async def main():
        async with hr.Runtime([refund, look], store=store, notify=wait) as runtime:
            return await runtime.calls([CALL, hr.ToolCall("c2", "look", "{}")], run="t")

    pending, seen = asyncio.run(main())
    assert pending.question is not None
    assert seen.ok
