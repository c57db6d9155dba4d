"""An operation of the API: its route, the role that it needs, and what it takes and gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from msgspec import Struct, field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from handrail import logs
from handrail.errors import ConfigError, Failure, Json, StoreUnavailable
from handrail.schemas.validation import Checker
from handrail.serving.tokens import Role
from handrail_server.access import Access, Principal
from handrail_server.answers import ApiError, answer
from handrail_server.deployment import Deployment
from handrail_server.guard import PRINCIPAL, read_cookie

PREFIX = "/api/v1"

_TOO_MANY_DIGITS = 20

Method: TypeAlias = Literal["GET", "POST", "DELETE"]


class ApiCall(Struct):
    """One request.

    Attributes:
        deployment: What is served.
        principal: Who asks; None only where an operation needs no role.
        path: The variable parts of the path.
        query: Its parameters.
        body: The JSON of a request that changes something.
        peer: The address that the request comes from.
    """

    deployment: Deployment
    access: Access
    principal: Principal | None
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    peer: str = ""

    @property
    def by(self) -> Principal:
        """Who asks."""
        assert self.principal is not None
        return self.principal

    def is_still_proven(self) -> bool:
        """Whether the proof that the request came with holds still: its token may be revoked, its session over."""
        session = read_cookie(self.headers.get("cookie", ""))
        now = self.access.identify(self.peer, self.headers, session)
        return now is not None and now.scope == self.by.scope

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a parameter of the query that is a number.

        Raises:
            ApiError: It is no number, too small or too large.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        # every `most` is shorter, and Python refuses to read very long ones
        is_number = text.isascii() and text.isdigit() and len(text) < _TOO_MANY_DIGITS
        if is_number and least <= int(text) <= most:
            return int(text)
        raise ApiError(
            422, "bad_parameter", f"`{name}` is a number from {least} to {most}"
        )

    def word(self, name: str, words: Sequence[str], default: str = "") -> str:
        """Return a parameter of the query that is one of some words, or empty.

        Raises:
            ApiError: It is another word.
        """
        text = self.query.get(name, default)
        if text and text not in words:
            raise ApiError(
                422, "bad_parameter", f"`{name}` is one of {', '.join(words)}"
            )
        return text


Handler: TypeAlias = Callable[[ApiCall], Any]
"""Returns JSON or a whole answer. A plain function runs in a thread, where it may wait for the store."""


class ApiOperation(Struct, frozen=True):
    """One operation.

    Attributes:
        path: Below the prefix, with `{name}` for what varies.
        role: What it needs; None for what needs no proof.
        summary: What it does, for the document of the API.
        query: Its parameters, and what each is.
        body: The properties of its body, as JSON Schema; those of `required` must be there.
        gives: What it answers.
    """

    method: Method
    path: str
    handler: Handler
    role: Role | None
    summary: str
    gives: str = "application/json"
    query: Mapping[str, str] = {}
    body: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    status: int = 200

    @property
    def body_schema(self) -> dict[str, Json]:
        """The JSON Schema of its body."""
        return {
            "type": "object",
            "properties": {name: dict(each) for name, each in self.body.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }

    def as_route(self, deployment: Deployment, access: Access) -> Route:
        """Return the route that carries it out."""
        checker = Checker(self.body_schema, coerce=False)

        async def carry_out(request: Request) -> Response:
            principal = request.scope.get(PRINCIPAL)
            self._check_role(principal)
            body: Mapping[str, Any] = {}
            if self.method == "POST":
                try:
                    sent = await request.body()
                except ClientDisconnect:
                    return Response(status_code=499)
                body = _read_body(sent, checker)
            call = ApiCall(
                deployment=deployment,
                access=access,
                principal=principal,
                path={
                    name: unquote(str(each))
                    for name, each in request.path_params.items()
                },
                query=dict(request.query_params),
                body=body,
                headers=request.headers,
                peer=request.client.host if request.client else "",
            )
            return await self._answer(call)

        return Route(PREFIX + self.path, carry_out, methods=[self.method])

    async def _answer(self, call: ApiCall) -> Response:
        try:
            if iscoroutinefunction(self.handler):
                given = await self.handler(call)
            else:
                given = await asyncio.to_thread(self.handler, call)
        except StoreUnavailable as error:
            raise ApiError(503, "store_unavailable", str(error)) from error
        except ConfigError as error:
            raise ApiError(422, "not_possible", str(error)) from error
        except ApiError:
            raise
        except Exception as error:
            logs.log_exception(f"{self.method} {PREFIX}{self.path} failed", error)
            raise ApiError(
                500,
                "internal_error",
                "the server could not do it; its log says why",
            ) from error
        if isinstance(given, Response):
            return given
        return answer(given, self.status)

    def _check_role(self, principal: Principal | None) -> None:
        if self.role is None:
            return
        if principal is None:
            raise ApiError(401, "no_valid_token", "send a token")
        if not principal.may(self.role):
            raise ApiError(
                403,
                "role_too_small",
                f"this needs the role {self.role!r}; {principal.name} has {principal.role!r}",
            )


def _read_body(body: bytes, checker: Checker) -> Mapping[str, Any]:
    """Return the body of a request.

    Raises:
        ApiError: It is no JSON, or not what the operation takes.
    """
    try:
        parsed = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "bad_json", "the body is no JSON") from error
    if not isinstance(parsed, dict):
        raise ApiError(400, "bad_json", "the body is no JSON object")
    checked = checker.check(parsed)
    if isinstance(checked, Failure):
        raise ApiError(422, "bad_body", checked.message)
    return checked.arguments
