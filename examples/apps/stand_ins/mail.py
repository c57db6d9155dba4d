"""A mailbox for tests and examples: a real SMTP server on the loopback interface that keeps what it is handed.

    with Mailbox() as mailbox:
        send = SendEmail(Server(mailbox.host, mailbox.port, tls="none"), sender="bot@example.com")
        ...
        mailbox.mails[0]["Subject"]

It speaks as much of RFC 5321 as a client needs to hand in mail, and goes wrong on demand: `Mailbox(faults=["busy",
"lost"])` answers 421 to the first connection and takes the second one's mail without a word.

Rule 1: like a real server it keeps a mail once it has seen its end, whether or not its answer arrives, and any number
        of mails of one Message-ID.
"""

from __future__ import annotations

from collections.abc import Iterable
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from socketserver import StreamRequestHandler
from threading import Lock
from typing import Literal, TypeAlias

from handrail.testing.serving import OwnedServer, Serving

Trouble: TypeAlias = Literal["gone", "busy", "cut", "refused", "lost"]
"""What goes wrong with a connection: `gone` hangs up at once, `busy` answers 421, `cut` hangs up in the middle of the
text, `refused` answers 451 to it, and `lost` takes the mail and hangs up without an answer."""


class Mailbox(Serving):
    """An SMTP server. `mails` holds what it took, in order; `connections` counts who came.

    Args:
        faults: What goes wrong with the n-th connection; those after the last are served.
        refuses: Addresses that it takes no mail for.
    """

    def __init__(self, *, faults: Iterable[Trouble | None] = (), refuses: Iterable[str] = ()) -> None:
        self.mails: list[EmailMessage] = []
        self.connections = 0
        self._faults = list(faults)
        self._refuses = {each.lower() for each in refuses}
        self._lock = Lock()
        super().__init__(_MailSession)

    def next_trouble(self) -> Trouble | None:
        """Count a connection and return what is to go wrong with it."""
        with self._lock:
            self.connections += 1
            if self.connections <= len(self._faults):
                return self._faults[self.connections - 1]
            return None

    def takes(self, address: str) -> bool:
        """Whether there is mail for this address here."""
        return address.lower() not in self._refuses

    def keep(self, data: bytes) -> None:
        """Keep a mail."""
        with self._lock:
            self.mails.append(message_from_bytes(data, _class=EmailMessage, policy=default))

    def holds(self, message_id: str) -> bool:
        """Whether a mail of this Message-ID was taken: for `SendEmail(was_sent=...)`."""
        with self._lock:
            return any(mail["Message-ID"] == message_id for mail in self.mails)


class _MailSession(StreamRequestHandler):
    """One connection: a greeting, then a command a line."""

    server: OwnedServer[Mailbox]

    def handle(self) -> None:
        mailbox = self.server.owner
        trouble = mailbox.next_trouble()
        if trouble == "gone":
            return
        if trouble == "busy":
            self._say("421 busy")
            return
        self._say("220 mailbox")
        while line := self.rfile.readline(1000):
            verb, _, rest = line.decode("ascii", "replace").strip().partition(" ")
            match verb.upper():
                case "DATA":
                    self._say("354 go on")
                    if trouble == "cut" or not self._take_mail(trouble):
                        return
                case "QUIT":
                    self._say("221 bye")
                    return
                case "RCPT" if not mailbox.takes(rest.partition("<")[2].partition(">")[0]):
                    self._say("550 nobody of that name")
                case "EHLO" | "HELO" | "MAIL" | "RCPT" | "RSET" | "NOOP":
                    self._say("250 mailbox")
                case _:
                    self._say("502 unknown")

    def _take_mail(self, trouble: Trouble | None) -> bool:
        """Read a mail and answer it; return whether the connection goes on."""
        data = self._text()
        if not data:
            return False
        if trouble == "refused":
            self._say("451 not now")
            return True
        self.server.owner.keep(data)
        if trouble == "lost":
            return False
        self._say("250 taken")
        return True

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def _text(self) -> bytes:
        """Read up to the line with a dot alone, which takes back the doubling of dots; empty when it never comes."""
        lines: list[bytes] = []
        while line := self.rfile.readline():
            if line == b".\r\n":
                return b"".join(lines)
            lines.append(line.removeprefix(b"."))
        return b""


__all__ = ["Mailbox", "Trouble"]
