"""What follows an attempt: another one, after which wait, or the end. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from posttrain.engine.expressions import evaluate_bool, nested, with_functions
from posttrain.engine.expressions.dates import loose_duration
from posttrain.engine.nodes import Node

JSON = dict[str, Any]


class RetryError(Exception):
    """A retry strategy that makes no sense; the message is the controller's."""


@dataclass(frozen=True)
class Done:
    """No more attempts: the phase and message of the whole."""

    phase: str
    message: str = ""


@dataclass(frozen=True)
class Wait:
    """Another attempt, but not before the time `until`."""

    until: float
    message: str


@dataclass(frozen=True)
class Again:
    """Another attempt now; it must be over by `deadline`, if any."""

    deadline: float | None = None


@dataclass(frozen=True)
class Attempt:
    """An attempt that has ended: its node, and when it started and finished."""

    node: Node
    started: float
    finished: float


Decision = Done | Wait | Again


def after(strategy: JSON, attempts: list[Attempt], now: float, *, shutdown: str = "", overdue: str = "") -> Decision:
    """What follows the last of `attempts`, which has ended. Raises RetryError and ExpressionError.

    `shutdown` is the strategy that the workflow was stopped with, `overdue` its deadline once that has passed.
    """
    last = attempts[-1].node
    if last["phase"] not in ("Failed", "Error"):
        return Done("Succeeded")
    if shutdown:
        return Done(last["phase"], f"Stopped with strategy '{shutdown}'")
    if overdue:
        return Done(last["phase"], f"retry exceeded workflow deadline {overdue}")
    limit = number(strategy.get("limit"))
    deadline: float | None = None
    if strategy.get("backoff") is not None:
        waiting, deadline = _backoff(strategy["backoff"], attempts, now, limit)
        if waiting is not None:
            return waiting
    if not _policy_allows(strategy, last):
        return Done(last["phase"], last.get("message", ""))
    if limit is not None and len(attempts) > limit:
        return Done(last["phase"], "No more retries left")
    if strategy.get("expression") and not evaluate_bool(strategy["expression"], _scope(attempts)):
        return Done(last["phase"], "retryStrategy.expression evaluated to false")
    return Again(deadline)


def number(value: Any) -> int | None:
    """A whole number that a manifest may give as text."""
    if value is None:
        return None
    if not re.fullmatch(r"\s*-?\d+\s*", str(value)):
        raise RetryError(f"value '{value}' cannot be resolved to an int")
    return int(value)


def _backoff(
    backoff: JSON, attempts: list[Attempt], now: float, limit: int | None
) -> tuple[Decision | None, float | None]:
    last = attempts[-1]
    end: float | None = None
    try:
        if backoff.get("maxDuration"):
            end = attempts[0].started + loose_duration(backoff["maxDuration"])
            if now > end:
                return Done(last.node["phase"], "Max duration limit exceeded"), None
        if not backoff.get("duration"):
            raise RetryError("no base duration specified for retryStrategy")
        wait = loose_duration(backoff["duration"])
        factor = number(backoff.get("factor"))
        if factor is not None and factor > 0:
            wait *= float(factor) ** (len(attempts) - 1)
        if backoff.get("cap"):
            wait = min(wait, loose_duration(backoff["cap"]))
    except ValueError as error:
        raise RetryError(str(error)) from None
    until = last.finished + wait
    if end is not None and until > end:
        return Done(last.node["phase"], "Backoff would exceed max duration limit"), None
    if now < until and limit is not None and len(attempts) <= limit:
        return Wait(until, f"Backoff for {_humanly(wait)}"), end
    return None, end


def _humanly(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    parts = [(hours, "hour"), (minutes, "minute"), (rest, "second")]
    return " ".join(f"{count} {unit}{'s' * (count != 1)}" for count, unit in parts if count) or "0 seconds"


_TRANSIENT = re.compile(
    r"i/o timeout|connection reset by peer|Transport is closing|net/http: TLS handshake timeout|connection refused"
    r"|http2: client connection lost|etcdserver: (request timed out|leader changed)|transaction timed out"
    r"|unexpected EOF"
    r"|the object has been modified|exceeded quota|too many requests",
    re.I,
)


def _policy_allows(strategy: JSON, last: Node) -> bool:
    policy = strategy.get("retryPolicy") or ("Always" if strategy.get("expression") else "OnFailure")
    match policy:
        case "Always":
            return True
        case "OnError":
            return last["phase"] == "Error"
        case "OnFailure":
            return last["phase"] == "Failed"
        case "OnTransientError":
            return bool(_TRANSIENT.search(last.get("message", "")))
    raise RetryError(f"{policy} is not a valid RetryPolicy")


def variables(attempts: list[Attempt], *, missing_code: str) -> dict[str, str]:
    """`lastRetry.…` of the last attempt; a missing exit code is "0" in a template and "-1" in an expression."""
    if not attempts:
        return {"exitCode": missing_code, "duration": "0", "status": "", "message": ""}
    last = attempts[-1]
    code = (last.node.get("outputs") or {}).get("exitCode")
    seconds = max(last.finished - last.started, 0.0)
    return {
        "exitCode": missing_code if code is None else code,
        "duration": f"{int(seconds)}",
        "status": last.node["phase"],
        "message": last.node.get("message", ""),
    }


def _scope(attempts: list[Attempt]) -> dict[str, Any]:
    flat = {f"lastRetry.{name}": text for name, text in variables(attempts, missing_code="-1").items()}
    return with_functions(nested({**flat, "retries": str(len(attempts) - 1)}))
