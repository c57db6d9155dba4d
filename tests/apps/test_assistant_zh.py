"""The Chinese assistant: what lies in the mailbox afterwards, and what reached the database."""

import asyncio
import runpy
from pathlib import Path

import pytest

import handrail as hr
from handrail.testing import ScriptedApprover, ScriptedModel
from handrail.testing.checklist import check
from handrail_toolbox.mail import SendEmail, Server
from stand_ins.mail import Mailbox

FILE = Path(__file__).parents[2] / "examples/apps/assistant_zh.py"


@pytest.fixture
def app():
    return runpy.run_path(str(FILE))


def test_one_mail_arrives_although_it_is_asked_for_twice_and_the_server_was_busy(
    app, capsys
):
    # The whole app twice, with the same outcome.
    (first, mails), (again, mails_again) = app["main"]([]), app["main"]([])
    assert [[mail["To"] for mail in each] for each in (mails, mails_again)] == [
        ["li.na@example.com"]
    ] * 2
    assert mails[0]["Subject"] == "订单 A-1042 明天送达，杭州有小雨"
    assert "取件请带伞" in mails[0].get_content()
    assert mails[0]["Message-ID"] == mails_again[0]["Message-ID"]
    assert (first.status, first.text) == ("done", again.text)
    assert "已发邮件" in first.text


def test_whoever_does_not_approve_gets_the_answer_and_no_mail(app, capsys):
    with Mailbox() as mailbox:
        send = SendEmail(
            Server(mailbox.host, mailbox.port, tls="none"), sender="shop@example.com"
        )
        approver = ScriptedApprover([False, False])
        run = asyncio.run(
            app["assist"](app["QUESTION"], ScriptedModel(app["SCRIPT"]), send, approver)
        )
    assert (run.status, mailbox.connections) == ("done", 0)
    assert "没有得到批准" in run.text
    assert approver.asked[0].arguments["to"] == ["li.na@example.com"]


def test_sql_in_an_order_number_does_not_reach_the_database(app):
    seen = []

    class Watched(app["GetOrder"]):
        name = "get_order"

        def open(self):
            super().open()
            self.orders.set_trace_callback(seen.append)

    async def asked():
        async with hr.Runtime([Watched()]) as runtime:
            return [
                await runtime.call("get_order", {"order_id": id})
                for id in ("A-1042' OR '1'='1", "A-1042")
            ]

    injected, found = asyncio.run(asked())
    assert (injected.failure.code, found.value["city"]) == ("INVALID_ARGUMENTS", "杭州")
    assert len(seen) == 1


def test_its_tools_pass_the_checks_for_users_who_write_chinese(app):
    tools = [app["GetOrder"](), app["get_forecast"]]
    assert (hr.lint(tools).findings, check(tools).missing) == ([], [])


def test_it_fits_on_three_screens():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 120
