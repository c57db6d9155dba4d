"""Tell people that a question waits for them: by mail, or to an address of a service.

    Runtime(tools, store=..., notify="mail:ops@example.com?server=smtp.example.com&sender=bot@example.com")
    Runtime(tools, store=..., notify="webhook:https://chat.example.com/hooks/approvals")

Recipients answer where the question is stored: with `handrail approvals`, or on a page that uses `Runtime.approvals`.
A notice gives no right to answer.

Rule 1: a notice that does not arrive is logged; its question is stored all the same.
Rule 2: a notice that is sent again has the same id: the Message-ID, or the header `webhook-id`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2

from handrail.errors import ConfigError, Json
from handrail.records import ApprovalRequest
from handrail.surroundings.clock import monotonic, sleep, unix_time
from handrail_toolbox.mail import (
    Server,
    hand_in,
    make_message,
    make_message_id,
    open_session,
)

WITHIN_S = 10.0
"""How long one notice may take."""
SECRET_VARIABLE = "HANDRAIL_WEBHOOK_SECRET"
_ATTEMPTS = 3
_LONGEST_SHOWN = 10_000


def as_json(question: ApprovalRequest) -> dict[str, Json]:
    """Return a question as JSON, as a service gets it."""
    return {
        "v": 1,
        "question": question.id,
        "kind": "result" if question.awaits_result else "approval",
        "run": question.run_id,
        "call_id": question.call_id,
        "tool": question.tool,
        "description": question.description,
        "arguments": dict(question.arguments),
        "risk": question.risk,
        "reason": question.reason,
        "required_approvals": question.required_approvals,
        "expires": question.expires,
    }


class Mail:
    """Sends a mail about each question.

    Args:
        server: A host, or a `Server`; a password is read from the environment.
        sender: The mails are from this address.
        recipients: The addresses that notices are sent to.
    """

    def __init__(
        self, server: str | Server, *, sender: str, recipients: Sequence[str]
    ) -> None:
        self._server = Server(server) if isinstance(server, str) else server
        self._sender = sender
        self._recipients = list(recipients)

    def __call__(self, question: ApprovalRequest) -> None:
        """Send the mail.

        Raises:
            NoEffect: The server does not take it.
        """
        verb = "answer" if question.awaits_result else "approval"
        message = make_message(
            make_message_id(f"handrail {question.id}", self._sender),
            self._sender,
            self._recipients,
            subject=f"{question.tool} waits for your {verb} ({question.id})",
            text=_describe(question),
        )
        with open_session(self._server, monotonic() + WITHIN_S) as session:
            hand_in(session, self._sender, self._recipients, message.as_bytes())


def _describe(question: ApprovalRequest) -> str:
    arguments = json.dumps(dict(question.arguments), ensure_ascii=False, indent=2)
    if len(arguments) > _LONGEST_SHOWN:
        arguments = f"{arguments[:_LONGEST_SHOWN]}\n[cut: `handrail approvals show {question.id}` has the rest]"
    expires = datetime.fromtimestamp(question.expires, UTC)
    commands = [f"handrail approvals approve {question.id}"]
    commands.append(f"handrail approvals deny {question.id} --reason ...")
    if question.awaits_result:
        commands = [f"handrail approvals answer {question.id} ..."]
    return "\n".join(
        [
            f"The run {question.run_id} waits: {question.reason} (risk: {question.risk}).",
            "",
            f"{question.tool}: {question.description}",
            arguments,
            "",
            *commands,
            "",
            f"It waits until {expires:%Y-%m-%d %H:%M} UTC.",
        ]
    )


class Webhook:
    """Posts each question as JSON to an address, signed as Standard Webhooks describes (standardwebhooks.com).

    Args:
        url: Where to; `https`, except on this machine.
        secret: What the signature is made with; by default the variable `HANDRAIL_WEBHOOK_SECRET`, unsigned without.

    Raises:
        ConfigError: The address is malformed, or not encrypted.
    """

    def __init__(self, url: str, *, secret: str = "") -> None:
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
        except ValueError:  # such as an IPv6 address without its end
            raise ConfigError("the address of a webhook cannot be read") from None
        is_here = host in ("localhost", "127.0.0.1", "::1")
        is_secure = parts.scheme == "https" or (parts.scheme == "http" and is_here)
        if not (host and is_secure):
            # without the path, which is often all that protects a webhook
            raise ConfigError(
                "notices are posted to an https address; "
                f"this one has the scheme {parts.scheme!r} and the host {host!r}"
            )
        self._url = url
        self._secret = secret

    def __call__(self, question: ApprovalRequest) -> None:
        """Post the question; again, at most twice, while the service cannot be reached or fails.

        Raises:
            httpx2.HTTPError: It was not taken.
        """
        body = json.dumps(as_json(question), ensure_ascii=False).encode()
        until = monotonic() + WITHIN_S
        for attempt in range(1, _ATTEMPTS + 1):
            left_s = until - monotonic()
            try:
                answer = httpx2.post(
                    self._url,
                    content=body,
                    headers=self._headers(question.id, body),
                    timeout=max(left_s, 0.1),
                )
                answer.raise_for_status()
            except (httpx2.TransportError, httpx2.HTTPStatusError) as error:
                if attempt == _ATTEMPTS or left_s <= 1 or not _may_pass(error):
                    raise
                sleep(0.2 * attempt)
            else:
                return

    def _headers(self, id: str, body: bytes) -> dict[str, str]:
        sent_at = str(int(unix_time()))
        headers = {
            "content-type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": sent_at,
        }
        secret = self._secret or os.environ.get(SECRET_VARIABLE, "")
        if secret:
            signed = b".".join((id.encode(), sent_at.encode(), body))
            digest = hmac.new(_read_secret(secret), signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return headers


def _read_secret(secret: str) -> bytes:
    """Return the bytes of a secret; one with the prefix of Standard Webhooks is in base64."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"))
    return secret.encode()


def _may_pass(error: Exception) -> bool:
    """Whether a service may take the same notice later."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code >= 500
    return True


def mail_from(place: str) -> Mail:
    """Return the notifier of `notify="mail:ADDRESS,...?server=HOST&sender=ADDRESS"`; also `port`, `tls` and `user`.

    Raises:
        ConfigError: The server or the sender is missing, or there is another setting.
    """
    to, _, query = place.partition("?")
    settings: dict[str, Any] = dict(parse_qsl(query))
    host = settings.pop("server", "")
    sender = settings.pop("sender", "")
    if not (to and host and sender):
        raise ConfigError(
            'a mail notice is given as "mail:TO?server=HOST&sender=ADDRESS"'
        )
    try:
        if "port" in settings:
            settings["port"] = int(settings["port"])
        server = Server(host, **settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            # its settings may hold a password, where there is no place for one
            f"the mail notice to {to!r} has a setting that cannot be used: {error}"
        ) from None
    return Mail(server, sender=sender, recipients=to.split(","))
