"""The cookie that a browser gets for a token, so that the token itself appears in no page and no address."""

from __future__ import annotations

from starlette.responses import Response

from handrail_server.access import SESSION_S
from handrail_server.answers import ApiError, answer
from handrail_server.guard import COOKIE, read_cookie, too_many_failures
from handrail_server.operations import ApiCall, ApiOperation


def open_session(call: ApiCall) -> Response:
    """Trade a token for a cookie."""
    session = call.access.open_session(call.body["token"])
    if session is None:
        if call.access.note_failure(call.peer):
            raise too_many_failures()
        raise ApiError(401, "no_valid_token", "this is no valid token")
    response = answer({"ok": True}, 201)
    _set(response, call, session, round(SESSION_S))
    return response


def close_session(call: ApiCall) -> Response:
    """Forget the session of a cookie."""
    call.access.close_session(read_cookie(call.headers.get("cookie", "")))
    response = answer({"ok": True})
    _set(response, call, "", 0)
    return response


def _set(response: Response, call: ApiCall, value: str, max_age_s: int) -> None:
    response.set_cookie(
        COOKIE,
        value,
        max_age=max_age_s,
        httponly=True,
        samesite="strict",
        secure=call.headers.get("x-forwarded-proto") == "https",
    )


OPERATIONS = [
    ApiOperation(
        "POST",
        "/session",
        open_session,
        None,
        "Trade a token for a cookie that page scripts cannot read.",
        body={"token": {"type": "string", "maxLength": 1000}},
        required=("token",),
        status=201,
    ),
    ApiOperation("DELETE", "/session", close_session, "see", "Forget the session."),
]
