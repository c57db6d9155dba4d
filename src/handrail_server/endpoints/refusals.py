"""Refusals of requests: one sentence for the sender, in the form of each protocol."""

from __future__ import annotations

from handrail import logs
from handrail.errors import (
    JournalMismatch,
    Json,
    RunNameTaken,
    RunUnderWay,
    StoreUnavailable,
)
from handrail_server.answers import ApiError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class Refusal(Exception):
    """A request that is not carried out.

    Args:
        status: Of HTTP.
        message: One sentence, which the sender reads.
        param: The member of the request that is at fault.
        code: A word for programs.
        may_retry: Whether the very same request may succeed later; official clients then send it again by themselves.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        may_retry: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.may_retry = may_retry

    @property
    def type(self) -> str:
        """OpenAI's word for this kind of error."""
        if self.status >= 500:
            return "server_error"
        return _TYPES.get(self.status, "invalid_request_error")

    def as_json(self) -> dict[str, Json]:
        """Return the body of the answer, in OpenAI's form."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def read_error(error: Exception) -> Refusal:
    """Return what the sender reads of an exception; the text of one that is not for them stays in the log."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ApiError):
        return Refusal(error.status, str(error), code=error.code)
    if isinstance(error, RunUnderWay | RunNameTaken):
        return Refusal(409, str(error), code="run_under_way")
    if isinstance(error, JournalMismatch):
        return Refusal(409, str(error), code="run_cannot_go_on")
    if isinstance(error, StoreUnavailable):
        logs.log_exception("a request could not be carried out", error)
        return Refusal(
            503, "the server's store does not answer", code="store_unavailable"
        )
    logs.log_exception("a request could not be carried out", error)
    return Refusal(
        500,
        "the server could not carry out the request; its log says why",
        code="internal_error",
    )
