"""Errors as each vendor says them, so that its SDK raises the class that its users catch."""

from __future__ import annotations

from http import HTTPStatus

from posttrain.llmm.ir import Failure
from posttrain.llmm.ir.origin import Json


class GatewayError(Exception):
    """An answer with an error's status. `code` is OpenAI's word where it has one; `retry_after` in seconds."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None,
        retry_after: float | None = None,
    ):  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.retry_after = status, message, code, param, retry_after

    def failure(self, dialect: str) -> Failure:
        """As an event in the middle of a stream."""
        kind = (
            _ANTHROPIC.get(self.status, "api_error") if dialect.startswith("anthropic") else _openai_type(self.status)
        )
        return Failure(message=self.message, type=kind, code=self.code)

    def body(self, dialect: str) -> Json:
        if dialect == "anthropic_messages":
            kind = _ANTHROPIC.get(self.status, "api_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        if dialect == "google_genai":
            status = _GOOGLE.get(self.status, "INTERNAL")
            return {"error": {"code": self.status, "message": self.message, "status": status}}
        kind = _openai_type(self.status)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class VendorError(GatewayError):
    """What a vendor answered: in its own dialect as it stands, `wire`; in another one's form with that one's words."""

    def __init__(self, status: int, message: str, *, retry_after: float | None, dialect: str, wire: Json | None):
        super().__init__(status, message, retry_after=retry_after)
        self._dialect, self._wire = dialect, wire

    def body(self, dialect: str) -> Json:
        return super().body(dialect) if self._wire is None or dialect != self._dialect else self._wire


def _openai_type(status: int) -> str:
    return _OPENAI.get(
        status, "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    )


_OPENAI = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error", 504: "timeout_error",
    503: "overloaded_error", 529: "overloaded_error",
}  # fmt: skip
_GOOGLE = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    413: "INVALID_ARGUMENT", 422: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 502: "UNAVAILABLE",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
