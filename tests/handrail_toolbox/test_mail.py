"""E-mail: what arrives, how often, and what is said when nobody knows. Against aiosmtpd and against our own mailbox."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.policy import default
from threading import Event, Thread

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

import handrail as hr
from handrail.testing import ScriptedApprover
from handrail.testing.checklist import check
from handrail_toolbox.mail import SendEmail, Server
from stand_ins.mail import Mailbox

MAIL = {
    "to": ["wang.li@example.com"],
    "subject": "订单 A-1 已发货",
    "text": "您好，\n.\n..dots\n订单已发货。\n",
}


class Kept:
    """What a real SMTP server was handed."""

    def __init__(self):
        self.mails, self.envelopes = [], []

    async def handle_DATA(self, server, session, envelope):  # aiosmtpd's name
        self.envelopes.append(envelope)
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        return "250 OK"


@contextmanager
def aiosmtpd(**how):
    kept = Kept()
    controller = Controller(kept, hostname="127.0.0.1", port=free_port(), **how)
    controller.start()
    try:
        kept.host, kept.port = "127.0.0.1", controller.port
        yield kept
    finally:
        controller.stop()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(params=[aiosmtpd, Mailbox], ids=["aiosmtpd", "mailbox"])
def mailbox(request):
    with request.param() as mailbox:
        yield mailbox


def tool(mailbox, **how):
    server = Server(
        mailbox.host, mailbox.port, tls="none", timeout_s=5, **how.pop("server", {})
    )
    return SendEmail(server, sender="bot@example.com", **{"approve": False} | how)


def sent(tool, *mails, run=None, **how):
    """Ask for mails one after the other; return the results."""

    async def asked():
        async with hr.Runtime([tool], backoff=hr.Backoff(0, 0), **how) as runtime:
            return [await runtime.call("send_email", mail) for mail in mails]

    return asyncio.run(asked())


# ---------------------------------------------------------------------- what arrives


def test_a_mail_arrives_as_it_was_written(mailbox):
    (result,) = sent(tool(mailbox), MAIL | {"cc": ["li@example.com"]})
    (mail,) = mailbox.mails
    assert (mail["From"], mail["To"], mail["Cc"]) == (
        "bot@example.com",
        "wang.li@example.com",
        "li@example.com",
    )
    assert (mail["Subject"], mail.get_content().replace("\r\n", "\n")) == (
        MAIL["subject"],
        MAIL["text"],
    )
    assert result.value["message_id"] == mail["Message-ID"]


def test_a_text_of_ascii_with_dots_at_the_start_of_its_lines_arrives_whole(mailbox):
    text = "a\n.\n..b\n.c\n"
    sent(tool(mailbox), MAIL | {"text": text})
    assert mailbox.mails[0].get_content().replace("\r\n", "\n") == text


def test_the_same_mail_asked_for_twice_is_sent_once(mailbox):
    first, again = sent(tool(mailbox), MAIL, MAIL)
    assert (len(mailbox.mails), again.replayed, again.value) == (1, True, first.value)


def test_another_text_is_another_mail_with_an_id_of_its_own(mailbox):
    sent(tool(mailbox), MAIL, MAIL | {"text": "other"})
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == 2


# ---------------------------------------------------------------------- what goes wrong


def test_one_mail_arrives_after_two_failures_before_it_was_taken():
    with Mailbox(faults=["gone", "busy"]) as mailbox:
        (result,) = sent(tool(mailbox), MAIL)
    assert (result.ok, result.attempts, len(mailbox.mails)) == (True, 3, 1)


def test_a_mail_that_the_server_refuses_for_now_is_sent_again_under_the_same_id():
    with Mailbox(faults=["refused"]) as mailbox:
        (result,) = sent(tool(mailbox), MAIL)
    assert (result.attempts, len(mailbox.mails), mailbox.mails[0]["Message-ID"]) == (
        2,
        1,
        result.value["message_id"],
    )


def test_a_lost_answer_leaves_the_mail_in_doubt_and_it_is_not_sent_again():
    with Mailbox(faults=["lost"]) as mailbox:
        (result,) = sent(tool(mailbox), MAIL)
    assert (result.failure.code, len(mailbox.mails), mailbox.connections) == (
        "IN_DOUBT",
        1,
        1,
    )


def test_a_lost_answer_is_settled_by_asking_whether_the_mail_went_out():
    with Mailbox(faults=["lost"]) as mailbox:
        (result,) = sent(tool(mailbox, was_sent=mailbox.holds), MAIL)
    assert (result.ok, len(mailbox.mails), mailbox.connections) == (True, 1, 1)
    assert result.value["message_id"] == mailbox.mails[0]["Message-ID"]


def test_one_mail_arrives_after_three_attempts_of_which_one_lost_its_answer_without_being_taken():
    with Mailbox(faults=["busy", "cut"]) as mailbox:
        # how long a mail that may be in flight is waited for
        brief = tool(mailbox, was_sent=mailbox.holds).replace(timeout_s=5)
        (result,) = sent(brief, MAIL)
    assert (result.ok, len(mailbox.mails), mailbox.connections) == (True, 1, 3)


def test_when_nobody_can_tell_whether_it_went_out_it_stays_in_doubt():
    with Mailbox(faults=["cut"]) as mailbox:
        (result,) = sent(tool(mailbox, was_sent=lambda _: None), MAIL)
    assert (result.failure.code, mailbox.connections) == ("IN_DOUBT", 1)


def test_when_one_recipient_is_refused_nobody_is_written_to():
    with Mailbox(refuses=["li@example.com"]) as mailbox:
        (result,) = sent(tool(mailbox), MAIL | {"cc": ["li@example.com"]})
    assert (result.failure.code, result.failure.retryable, mailbox.mails) == (
        "MAIL_REFUSED",
        False,
        [],
    )
    assert "li@example.com (SMTP 550)" in result.failure.message


def test_a_server_that_is_not_there_is_told_as_unavailable():
    nowhere = SendEmail(
        Server("127.0.0.1", free_port(), tls="none"),
        sender="bot@example.com",
        approve=False,
    )
    (result,) = sent(nowhere, MAIL)
    assert (result.failure.code, result.failure.retryable, result.attempts) == (
        "UNAVAILABLE",
        True,
        3,
    )


def test_a_server_without_tls_gets_nothing_when_tls_is_asked_for():
    with Mailbox() as mailbox:
        safe = SendEmail(
            Server(mailbox.host, mailbox.port), sender="bot@example.com", approve=False
        )
        (result,) = sent(safe, MAIL)
    assert (result.failure.code, result.attempts, mailbox.mails) == (
        "MAIL_NOT_SET_UP",
        1,
        [],
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that nobody else knows, and its key."""
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip(
            "openssl is not installed, so there is no certificate to test TLS with"
        )
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run([
        openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost",
    ], check=True, capture_output=True)  # fmt: skip
    return folder


@pytest.mark.parametrize(("trusted", "host", "outcome"), [
    (True, "localhost", "sent"), (False, "localhost", "MAIL_NOT_SET_UP"), (True, "127.0.0.1", "MAIL_NOT_SET_UP"),
])  # fmt: skip
def test_a_mail_and_its_password_go_to_a_server_whose_certificate_is_right_and_to_no_other(
    certificate, monkeypatch, trusted, host, outcome
):
    monkeypatch.setenv("SMTP_PASSWORD", "hunter2")
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    seen = []

    def authenticate(server, session, envelope, mechanism, login):
        seen.append(login.password)
        return AuthResult(success=True)

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with aiosmtpd(
        tls_context=tls,
        require_starttls=True,
        authenticator=authenticate,
        auth_required=True,
    ) as mailbox:
        server = Server(host, mailbox.port, user="bot", timeout_s=5)
        (result,) = sent(
            SendEmail(server, sender="bot@example.com", approve=False), MAIL
        )
    assert ("sent" if result.ok else result.failure.code) == outcome
    assert (len(mailbox.mails), seen) == (
        (1, [b"hunter2"]) if outcome == "sent" else (0, [])
    )


def test_a_password_is_in_no_message(mailbox, monkeypatch):
    monkeypatch.setenv("SMTP_PASSWORD", "hunter2-secret")
    wants_login = tool(mailbox, server={"user": "bot"})
    (result,) = sent(wants_login, MAIL)
    assert result.failure.code == "MAIL_NOT_SET_UP"
    assert "hunter2" not in f"{result.text} {wants_login!r} {vars(wants_login)}"
    assert mailbox.mails == []


@pytest.mark.proof
def test_one_mail_arrives_whatever_dies_when_the_mailbox_can_be_asked(crash):
    with Mailbox() as mailbox:
        crash(
            tool(mailbox, was_sent=mailbox.holds),
            MAIL,
            effects=lambda: len(mailbox.mails),
        )


# ---------------------------------------------------------------------- what may be sent


@pytest.mark.parametrize("forged", [
    {"subject": "Hi\r\nBcc: evil@example.net"}, {"to": ["a@example.com\r\nRCPT TO:<evil@example.net>"]},
    {"to": ["a@example.com, evil@example.net"]}, {"cc": ["x\n@example.com"]}, {"subject": "Hi\u2028Bcc: x"}, {"to": []},
    {"to": ["a@example.com"] * 21}, {"from": "boss@example.com"}, {"text": ""},
])  # fmt: skip
def test_a_forged_header_is_refused_before_anything_is_sent(forged):
    with Mailbox() as mailbox:
        (result,) = sent(tool(mailbox), MAIL | forged)
    assert (result.failure.code, mailbox.connections) == ("INVALID_ARGUMENTS", 0)


@pytest.mark.parametrize("forged", [
    {"subject": "=?utf-8?q?Hi=0D=0ABcc:_evil=40example.net?="}, {"subject": "Hi =?utf-8?b?QQ0KQmNjOiB4?="},
    {"to": ["=?utf-8?q?boss=40evil.example=2C_b?=@example.com"]}, {"cc": ["=?utf-8?q?a?=@example.com"]},
])  # fmt: skip
def test_a_word_that_mail_programs_decode_is_refused_before_anybody_is_asked(forged):
    """Python decodes it where a header is set (CVE-2024-6923), so another header would go out than was agreed to."""
    with Mailbox() as mailbox:
        (result,) = sent(tool(mailbox), MAIL | forged)
    assert (result.failure.code, mailbox.connections) == ("RULE_VIOLATED", 0)


@pytest.mark.parametrize(("to", "cc", "code"), [
    (["WANG@Example.com"], [], None),
    (["boss@other.example"], [], None),
    (["wang@example.com"], ["x@evil.example"], "RULE_VIOLATED"),
    (["x@sub.example.com"], [], "RULE_VIOLATED"),
    (["x@evilexample.com"], [], "RULE_VIOLATED"),
])  # fmt: skip
def test_only_the_listed_are_written_to(to, cc, code):
    with Mailbox() as mailbox:
        limited = tool(mailbox, recipients=["@example.com", "boss@other.example"])
        (result,) = sent(limited, MAIL | {"to": to, "cc": cc})
    assert (result.failure.code if result.failure else None, len(mailbox.mails)) == (
        code,
        int(code is None),
    )


def test_a_person_is_asked_unless_it_is_declared_otherwise():
    with Mailbox() as mailbox:
        approver = ScriptedApprover([False, True])
        asking = tool(mailbox, approve=True)
        (refused,) = sent(asking, MAIL, approver=approver)
        (agreed,) = sent(asking, MAIL, approver=approver)
    assert (refused.failure.code, agreed.ok, len(mailbox.mails)) == (
        "NOT_APPROVED",
        True,
        1,
    )
    assert approver.asked[0].arguments["to"] == MAIL["to"]


def test_a_dry_run_connects_to_nobody():
    with Mailbox() as mailbox:
        (result,) = sent(tool(mailbox, dry_run=True), MAIL)
    assert (result.value["dry_run"], mailbox.connections) == (True, 0)


@pytest.mark.parametrize(("how", "told"), [
    ({"sender": "bot"}, "'bot' is no e-mail address"),
    ({"sender": "bot@example.com", "recipients": ["@"]}, "is no e-mail address"),
    ({"sender": "bot@example.com\nBcc: x@y.z"}, "is no e-mail address"),
])  # fmt: skip
def test_an_address_that_is_none_is_said_when_the_tool_is_made(how, told):
    with pytest.raises(hr.ConfigError, match=told):
        SendEmail("smtp.example.com", **how)


def test_a_password_does_not_go_over_the_network_in_the_clear():
    with pytest.raises(hr.ConfigError, match="in the clear"):
        SendEmail(
            Server("smtp.example.com", tls="none", user="bot"), sender="bot@example.com"
        )


def test_lint_and_check_find_nothing():
    made = SendEmail("smtp.example.com", sender="bot@example.com")
    assert (hr.lint([made]).findings, check([made]).missing) == ([], [])


# ---------------------------------------------------------------------- servers without an end


@contextmanager
def endless(*said):
    """A server that says something on and on, piece by piece, to whoever connects."""
    ended = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def say():
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(said[0])
                while not ended.is_set():
                    client.sendall(said[1])
                    ended.wait(0.001)

        speaking = Thread(target=say)
        speaking.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            speaking.join()


@pytest.mark.parametrize("said", [
    # more than any answer has, long before its time is over
    (b"", b"220-welcome\r\n" * 1000),
    (b"", b"220-welcome\r\n"),          # each line in time, and never the last
    (b"220-", b"x"),                     # each byte in time, and never a line
])  # fmt: skip
def test_an_answer_without_an_end_is_not_waited_for(said):
    with endless(*said) as port:
        server = Server("127.0.0.1", port, tls="none", timeout_s=0.3)
        (result,) = sent(
            SendEmail(server, sender="bot@example.com", approve=False), MAIL
        )
    assert result.failure.code == "UNAVAILABLE"
