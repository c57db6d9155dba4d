"""E-mail by SMTP: one tool that sends one mail, after somebody has agreed to it.

    SendEmail("smtp.example.com", sender="bot@example.com", recipients=["@example.com"])

The sender, the server, who may be written to and the password (`SMTP_PASSWORD`) are the programmer's; the model says to
whom, under which subject, and what.

What a failure means depends on when it occurs. Before the end of the text has been sent, the server must not
deliver (RFC 5321, 4.1.1.4): the mail certainly did not go out, and may be tried again. A server that answers 4xx or 5xx
to the text has refused it. Between the end of the text and its answer nobody knows, and SMTP has no way to ask:
`was_sent`, if there is a log or a mailbox to look into, settles it; otherwise the mail is in doubt and not sent again.
A server does not tell duplicates apart by their Message-ID, so the tool does not declare `replay="key"`.

Rule 1: all recipients or none: when one is refused, nobody is written to.
Rule 2: of what a server says, the model reads the number at most; the password is in no message.
"""

from __future__ import annotations

import hashlib
import os
import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from msgspec import Struct
from pydantic import Field, TypeAdapter, ValidationError

from handrail.context import Context
from handrail.effects import Found, NotFound, Unknown, Verification
from handrail.errors import Code, ConfigError, Json, NoEffect
from handrail.guards import EmailAddress, OneLine
from handrail.surroundings.clock import monotonic
from handrail.tools.settings import Sends
from handrail.tools.tool import BaseTool

MOST_RECIPIENTS = 20
MOST_CHARACTERS = 100_000
MOST_ANSWER_BYTES = 64 * 1024

Tls: TypeAlias = Literal["starttls", "tls", "none"]
_PORTS: Mapping[Tls, int] = {"starttls": 587, "tls": 465, "none": 25}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

# Headers in RFC 2047 and the text in base64 or quoted-printable, for servers that know nothing but ASCII.
_ASCII = SMTP.clone(cte_type="7bit")


class Sent(TypedDict):
    """A mail that the server has taken, or with `dry_run` one that was only looked at."""

    message_id: str
    to: list[str]
    cc: list[str]
    subject: str
    dry_run: bool


class Server(Struct, frozen=True):
    """Where mail is handed in.

    Attributes:
        tls: `starttls` and `tls` check the certificate and send nothing where there is none. `none` is in the clear.
        port: 587, 465 or 25 by default, by `tls`.
        user: For servers that want one; the password is read from `password_variable` of the environment, each time.
        timeout_s: What one answer of it may take.
    """

    host: str
    port: int = 0
    tls: Tls = "starttls"
    user: str = ""
    password_variable: str = "SMTP_PASSWORD"
    timeout_s: float = 15.0


class SendEmail(BaseTool):
    """A tool that sends mail from one address.

    Args:
        server: A host, or a `Server`.
        sender: Every mail is from this address.
        recipients: Who may be written to: addresses, or domains as `@example.com`. None is everybody.
        was_sent: Says of a Message-ID whether that mail went out (None: cannot tell); asked after a lost answer.
        approve: When a person must agree, as in `@tool`.
        key: What makes two mails one act, as in `@tool`. By default equal mails to equal people are one, in whatever
            run: a monthly reminder needs its month in the text, or another key.
        dry_run: Connect to nobody, and say so in the result.

    Raises:
        ConfigError: An address is malformed, or a password would go over the network in the clear.
    """

    name = "send_email"
    effect = "write"
    sends = Sends(trust="trusted")  # it answers in our own words
    timeout_s = 60
    resource = "mail:{to}"
    aliases = ("发送邮件", "发邮件", "写邮件", "电子邮件", "mail", "e-mail")

    def __init__(
        self,
        server: str | Server,
        *,
        sender: str,
        recipients: Sequence[str] | None = None,
        was_sent: Callable[[str], bool | None] | None = None,
        approve: bool | str | Callable[..., bool] = True,
        key: str | Callable[..., str] | None = None,
        dry_run: bool = False,
    ) -> None:
        if isinstance(server, str):
            self._server = Server(server)
        else:
            self._server = server
        if (
            self._server.user
            and self._server.tls == "none"
            and self._server.host not in _LOOPBACK
        ):
            raise ConfigError(
                f"the password for {self._server.host} would go over the network in the clear; use tls"
            )
        for each in (sender, *(recipients or ())):
            _require_address(
                f"x{each}" if each.startswith("@") and each != sender else each
            )
        self._sender = sender
        self._dry_run = dry_run
        if recipients is None:
            self._recipients = None
        else:
            self._recipients = {each.lower() for each in recipients}
        self._lookup = was_sent
        self.approve = approve
        self.key = key or _same_mail
        self.check = self._reason_to_refuse
        if was_sent is not None:
            self.verify = self._verify_sent
        super().__init__()

    def run(
        self,
        to: Annotated[
            list[EmailAddress], Field(min_length=1, max_length=MOST_RECIPIENTS)
        ],
        subject: OneLine,
        text: Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)],
        context: Context[Any],
        cc: Annotated[list[EmailAddress], Field(max_length=MOST_RECIPIENTS)] = [],  # noqa: B006  # copied by pydantic
    ) -> Sent:
        """Send an e-mail in plain text, from an address that is set.

        Use it when the user wants somebody written to, once all of it is known: ask for an address rather than make one
        up. Not for chat messages. A person may be asked before it is sent, and it cannot be taken back. Returns its
        Message-ID.

        Args:
            to: Addresses of the recipients, such as ["wang.li@example.com"].
            subject: Subject in one line, such as "Order A-1 has shipped".
            text: Text of the mail, with greeting and signature, in the recipient's language.
            cc: Addresses that get a copy.
        """
        message = make_message(
            make_message_id(context.idempotency_key, self._sender),
            self._sender,
            to,
            subject=subject,
            text=text,
            cc=cc,
        )
        if not self._dry_run:
            if context.cancelled.is_set():
                raise NoEffect(
                    Code.CANCELLED,
                    "The mail was given up.",
                    suggestion="Send it if it is still wanted.",
                )
            until = monotonic() + context.remaining_s()
            with open_session(self._server, until) as session:
                hand_in(
                    session,
                    self._sender,
                    [*dict.fromkeys([*to, *cc])],
                    message.as_bytes(),
                )
        return Sent(
            message_id=message["Message-ID"],
            to=to,
            cc=cc,
            subject=subject,
            dry_run=self._dry_run,
        )

    def _reason_to_refuse(
        self, to: Sequence[str], subject: str, cc: Sequence[str] = (), **_: Any
    ) -> str | None:
        """Return what would be sent differently from what a person agreed to, or which recipient is not allowed."""
        # Python decodes an encoded word (RFC 2047) where a header is set: a second recipient or header may stand in it.
        if encoded := next((each for each in (*to, *cc, subject) if "=?" in each), ""):
            return (
                f"{encoded[:80]!r} has `=?` in it, where mail programs begin to decode; "
                "write it as it is to be read."
            )
        if self._recipients is None:
            return None
        for each in (*to, *cc):
            address = each.lower()
            if not self._recipients & {address, address[address.rindex("@") :]}:
                return f"{each} is none of those who may be written to ({', '.join(sorted(self._recipients))})."
        return None

    def _verify_sent(
        self, arguments: Mapping[str, Json], context: Context[Any]
    ) -> Verification:
        id = make_message_id(context.idempotency_key, self._sender)
        was_sent = self._lookup(id) if self._lookup else None
        if was_sent is None:
            return Unknown()
        to = arguments["to"]
        cc = arguments.get("cc", [])
        sent = Sent(
            message_id=id,
            to=to,
            cc=cc,
            subject=arguments["subject"],
            dry_run=False,
        )
        return Found(sent) if was_sent else NotFound()


class _Bounds(Struct):
    """What one answer of a server may take, and until when all of them must have come."""

    answer_s: float
    until: float
    answer_until: float = 0.0

    def begin(self) -> None:
        """Begin to wait for an answer."""
        self.answer_until = min(monotonic() + self.answer_s, self.until)

    def left_s(self) -> float:
        """Return the time that is left for this answer, or for a new one."""
        left = (
            self.answer_until or min(monotonic() + self.answer_s, self.until)
        ) - monotonic()
        if left <= 0:
            raise TimeoutError("the mail server's answer has no end")
        return left


class _Answers:
    """The lines of a server, read until a deadline. smtplib's own file has none: it waits again for each piece."""

    def __init__(self, connection: socket.socket, bounds: _Bounds) -> None:
        self._connection = connection
        self._bounds = bounds
        self._buffer = b""
        self._received = 0

    def begin(self) -> None:
        """Begin a new answer."""
        self._bounds.begin()
        self._received = 0

    def readline(self, most: int) -> bytes:
        """Return the next line, or the beginning of one that is too long; nothing where the server is gone."""
        while b"\n" not in self._buffer and len(self._buffer) < most:
            self._connection.settimeout(self._bounds.left_s())
            if not (more := self._connection.recv(4096)):
                break
            self._buffer += more
        self._bounds.left_s()
        self._connection.settimeout(self._bounds.answer_s)  # for what is sent next
        line = self._buffer[: (self._buffer.find(b"\n") + 1) or most][:most]
        self._buffer = self._buffer[len(line) :]
        self._received += len(line)
        if self._received > MOST_ANSWER_BYTES:
            raise smtplib.SMTPServerDisconnected("the mail server's answer has no end")
        return line

    def close(self) -> None:
        """Close nothing: the connection is smtplib's."""


class _SmtpSession(smtplib.SMTP):
    """A session in which no answer is waited for without end."""

    def __init__(self, *where: Any, bounds: _Bounds, **how: Any) -> None:
        self._bounds = bounds
        super().__init__(*where, **how)

    def getreply(self) -> tuple[int, bytes]:
        """See `smtplib.SMTP.getreply`."""
        if not isinstance(self.file, _Answers) and self.sock is not None:
            self.file = _Answers(self.sock, self._bounds)
        if self.file is not None:
            self.file.begin()
        return super().getreply()


class _TlsSmtpSession(_SmtpSession, smtplib.SMTP_SSL):
    """The same over TLS from the start."""


def make_message(
    id: str,
    sender: str,
    to: Sequence[str],
    *,
    subject: str,
    text: str,
    cc: Sequence[str] = (),
) -> EmailMessage:
    """Return a mail in plain text that a program has written."""
    message = EmailMessage(policy=_ASCII)
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Subject"] = subject
    if cc:
        message["Cc"] = ", ".join(cc)
    message["Date"] = datetime.now(UTC)
    message["Message-ID"] = id
    # RFC 3834: whoever answers for the absent stays silent
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


@contextmanager
def open_session(server: Server, until: float) -> Iterator[smtplib.SMTP]:
    """Connect, secure and log in. Whatever fails here, nothing was sent.

    Args:
        until: When it must be over, in monotonic seconds.

    Raises:
        NoEffect: The server cannot be reached, or lets nobody in.
    """
    bounds = _Bounds(server.timeout_s, until)
    port = server.port or _PORTS[server.tls]
    own_name = socket.gethostname()
    try:
        if server.tls == "tls":
            tls = ssl.create_default_context()
            session: smtplib.SMTP = _TlsSmtpSession(
                server.host,
                port,
                own_name,
                timeout=bounds.left_s(),
                context=tls,
                bounds=bounds,
            )
        else:
            session = _SmtpSession(
                server.host,
                port,
                own_name,
                timeout=bounds.left_s(),
                bounds=bounds,
            )
    except (OSError, smtplib.SMTPException) as error:
        raise _not_sent(error) from error
    try:
        try:
            if server.tls == "starttls":
                session.starttls(context=ssl.create_default_context())
            if server.user:
                session.login(server.user, os.environ.get(server.password_variable, ""))
            session.ehlo_or_helo_if_needed()
        except (OSError, smtplib.SMTPException) as error:
            raise _not_sent(error) from error
        yield session
        # the mail is taken, however they part
        with suppress(OSError, smtplib.SMTPException):
            session.quit()
    finally:
        session.close()


def hand_in(
    session: smtplib.SMTP, sender: str, recipients: Sequence[str], data: bytes
) -> None:
    """Hand in one mail.

    Raises:
        NoEffect: The server refused it, or went away before it had all of it.
        ConnectionError: It had all of it, and its answer is lost.
    """
    try:
        _expect(
            session.mail(sender), "The server does not take mail from this sender", 250
        )
        for each in recipients:
            _expect(
                session.rcpt(each),
                f"The server does not take mail for {each}",
                250,
                251,
            )
        _expect(session.docmd("DATA"), "The server takes no mail now", 354)
        # A dot at the start of a line is doubled (RFC 5321, 4.5.2): alone, it would end the text.
        session.send(
            re.sub(
                rb"(?m)^\.", b"..", data if data.endswith(b"\r\n") else data + b"\r\n"
            )
        )
    except (OSError, smtplib.SMTPException) as error:
        raise _not_sent(error) from error
    try:
        session.send(b".\r\n")
        answer = session.getreply()
    except (OSError, smtplib.SMTPException) as error:
        raise ConnectionError(
            "the server went away before it said whether it took the mail"
        ) from error
    if not 200 <= answer[0] < 600:
        raise ConnectionError("the server's answer to the mail cannot be read")
    _expect(answer, "The server did not take the mail", *range(200, 400))


def _expect(answer: tuple[int, bytes], otherwise: str, *codes: int) -> None:
    if answer[0] not in codes:
        raise _refusal(answer[0], otherwise)


def _refusal(status: int, text: str) -> NoEffect:
    passing = 400 <= status < 500  # RFC 5321, 4.2.1: 4yz may pass, 5yz will not
    if passing:
        advice = "Send it again later."
    else:
        advice = "Tell the user; ask for another address if that is what was refused."
    return NoEffect(
        "MAIL_REFUSED",
        f"{text} (SMTP {status}). Nothing was sent.",
        suggestion=advice,
        retryable=passing,
    )


def _not_sent(error: Exception) -> NoEffect:
    """Word a failure before anything was sent; the server's own text stays with the exception."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return _setup_failure("does not accept the user and the password")
    if isinstance(error, smtplib.SMTPNotSupportedError | ssl.SSLCertVerificationError):
        return _setup_failure(
            "cannot be reached in the safe way that is asked for (TLS, its certificate, or a login)"
        )
    if isinstance(error, smtplib.SMTPResponseException) and error.smtp_code > 0:
        return _refusal(error.smtp_code, "The mail server refused the connection")
    message = "The mail server cannot be reached just now. Nothing was sent."
    return NoEffect(
        Code.UNAVAILABLE,
        message,
        suggestion="Send it again later, or tell the user.",
        retryable=True,
    )


def _setup_failure(trouble: str) -> NoEffect:
    advice = "Tell the user that the mail server's settings need a look."
    return NoEffect(
        "MAIL_NOT_SET_UP",
        f"The mail server {trouble}. Nothing was sent.",
        suggestion=advice,
    )


def make_message_id(key: str, sender: str) -> str:
    """Name the mail after the act: every attempt at it carries the same Message-ID (RFC 5322, 3.6.4)."""
    return (
        f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{sender.rpartition('@')[2]}>"
    )


def _same_mail(
    to: Sequence[str], subject: str, text: str, cc: Sequence[str] = ()
) -> str:
    identity = "\0".join(
        [
            *sorted({each.lower() for each in to}),
            "",
            *sorted({each.lower() for each in cc}),
            subject,
            text,
        ]
    )
    return f"mail:{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


_ADDRESS: TypeAdapter[str] = TypeAdapter(EmailAddress)


def _require_address(text: str) -> None:
    try:
        _ADDRESS.validate_python(text)
    except ValidationError as error:
        raise ConfigError(
            f'{text!r} is no e-mail address such as "bot@example.com"'
        ) from error
