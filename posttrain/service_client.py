"""Calls of our HTTP services: JSON in, a typed answer out; a service that is away for a while is waited for.

Invariant: only what may be repeated is: every call of our services has the same effect twice as once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from posttrain.errors import UserError

log = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)

A = TypeVar("A", bound=BaseModel)
T = TypeVar("T")
Query = Mapping[str, str | int | None]
_AWAY = (502, 503, 504)


def in_parts(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """`items` in lists of at most `size`, as one call takes them."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))


class ServiceError(UserError):
    """The service refused a call: `status` is HTTP's, `body` what it answered."""

    def __init__(self, status: int, detail: str, body: Any, *, where: str):
        self.status, self.body = status, body
        super().__init__(f"{detail} (HTTP {status})", field=where)


class ServiceAway(UserError):
    """The service did not answer for as long as the caller would wait."""

    exit_code = 1


class _Again(Exception):
    """The call may be repeated; carries why."""


class ServiceClient:
    """Calls to the service at `url`, repeated for `patience` seconds while it is away. Threads may share one."""

    def __init__(self, url: str, *, field: str, timeout: float = 90.0, patience: float = 60.0):
        if not url.startswith(("http://", "https://")):
            raise UserError("is no address", field=field, value=url, remedy="write http://HOST:PORT")
        self.url, self._field, self._patience = url.rstrip("/"), field, patience
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.Client(base_url=self.url, timeout=httpx.Timeout(timeout, connect=5.0), limits=limits)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_ready(self, seconds: float) -> None:
        """Until the server serves. Raises ServiceAway."""
        until = time.monotonic() + seconds
        while not self._is_ready():
            if time.monotonic() > until:
                raise ServiceAway(f"is not ready after {seconds:g} s", field=self._field, value=self.url)
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/ready", timeout=2.0).is_success
        except httpx.HTTPError:
            return False

    def call(
        self, method: str, path: str, answer: type[A], body: BaseModel | None = None, *, query: Query | None = None
    ) -> A:
        """The answer of one call. Raises ServiceError for a refusal, ServiceAway after `patience` seconds."""
        response = self.send(method, path, None if body is None else body.model_dump_json(), query)
        return answer.model_validate_json(response.content)

    def send(self, method: str, path: str, body: str | None = None, query: Query | None = None) -> httpx.Response:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            for attempt in Retrying(
                stop=stop_after_delay(self._patience), wait=wait_random_exponential(0.05, 2.0),
                retry=retry_if_exception_type(_Again), reraise=True, before_sleep=self._tell,
            ):  # fmt: skip
                with attempt:
                    return self._once(method, path, body, given, headers)
        except _Again as problem:
            raise ServiceAway(f"does not answer: {problem}", field=self._field, value=self.url) from None
        raise AssertionError("unreachable")

    def _once(
        self, method: str, path: str, body: str | None, query: dict[str, Any], headers: dict[str, str]
    ) -> httpx.Response:
        try:
            response = self._http.request(method, path, content=body, params=query, headers=headers)
        except httpx.TransportError as problem:
            raise _Again(str(problem) or type(problem).__name__) from None
        if response.status_code in _AWAY:
            raise _Again(self._detail(response))
        if response.is_error:
            raise ServiceError(response.status_code, self._detail(response), self._json(response), where=self._field)
        return response

    def _tell(self, state: RetryCallState) -> None:
        if state.attempt_number == 3 and state.outcome is not None:
            log.warning("%s does not answer and is waited for: %s", self.url, state.outcome.exception())

    def _detail(self, response: httpx.Response) -> str:
        body = self._json(response)
        detail = body.get("detail") if isinstance(body, dict) else None
        if isinstance(detail, list):  # FastAPI's validation errors
            detail = "; ".join(f"{'.'.join(str(p) for p in e['loc'][1:])}: {e['msg']}" for e in detail)
        return str(detail or response.text[:500] or response.reason_phrase)

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            return None
