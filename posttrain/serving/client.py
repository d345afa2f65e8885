"""A small client of the OpenAI-compatible interface: what a verification needs of it, with the time that it took."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from posttrain.errors import UserError

logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for every request is no news


class ServerFailed(UserError):
    """The server was late, went away, or does not answer as the interface says, which another attempt may not:
    not the code of a user's mistake."""

    exit_code = 1


@dataclass(frozen=True)
class Reply:
    text: str
    tokens: int
    finish_reason: str
    seconds: float


class ChatClient:
    """Speaks to `url` (scheme, host, port). Safe to share between threads."""

    def __init__(self, url: str, *, timeout: float = 120.0):
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def wait_healthy(self, seconds: float) -> None:
        """Raise ServerFailed where `/health` does not answer with 200 within `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                status = self._http.get("/health").status_code
                if status == 200:
                    return
                found = f"answers {status} to /health"
            except httpx.HTTPError as problem:
                found = f"cannot be reached ({_said(problem)})"
            if time.monotonic() >= until:
                raise ServerFailed(f"the server at {self.url} {found}")
            time.sleep(0.5)

    def model(self) -> dict[str, Any]:
        """The entry of the first served model: `id`, and with vLLM `root`, the directory it was loaded from."""
        found = self._json("GET", "/v1/models").get("data")
        if not isinstance(found, list) or not found or "id" not in found[0]:
            raise ServerFailed(f"the server at {self.url} lists no model")
        return found[0]

    def chat(self, model: str, messages: Sequence[dict[str, str]], **parameters: Any) -> Reply:
        """One answer to `messages`; `parameters` go into the request (max_tokens, temperature, …)."""
        started = time.monotonic()
        body = self._json("POST", "/v1/chat/completions", {"model": model, "messages": list(messages)} | parameters)
        seconds = time.monotonic() - started
        try:
            choice, tokens = body["choices"][0], body["usage"]["completion_tokens"]
            reply = Reply(choice["message"]["content"] or "", tokens, choice["finish_reason"], seconds)
        except (KeyError, IndexError, TypeError):
            raise ServerFailed(f"the server at {self.url} answers in another form: {str(body)[:200]}") from None
        return reply

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as problem:
            raise ServerFailed(f"the server at {self.url} stopped answering ({_said(problem)})") from None
        if not answer.is_success:
            raise ServerFailed(f"the server at {self.url} answers {answer.status_code} to {path}: {answer.text[:200]}")
        try:
            return answer.json()
        except ValueError:
            raise ServerFailed(f"the server at {self.url} answers {path} with no JSON: {answer.text[:200]}") from None


def _said(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
