"""Processes that tests start: a port for each, and waiting for what they do."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60, *, every: float = 0.1) -> None:
    """Return once `holds()`; AssertionError that tells `what` where it does not within `seconds`."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(every)


def wait_for(url: str, process: subprocess.Popen[Any], seconds: float = 300) -> None:
    """Return once `url` answers with success; AssertionError where `process`, which serves it, ends before that."""

    def answers() -> bool:
        if process.poll() is not None:
            said = process.stderr.read() if process.stderr else ""
            raise AssertionError(f"{process.args} ended with {process.returncode}: {said}")
        try:
            return httpx.get(url, timeout=2).is_success
        except httpx.TransportError:
            return False

    wait_until(answers, f"{url} does not answer", seconds, every=0.2)
