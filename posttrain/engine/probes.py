"""Startup, readiness and liveness probes, with Kubernetes' fields, defaults and order.

A container without a startup probe is started at once; readiness and liveness wait for it. Counting
is pure (`Tally`); asking is `ask`, which never raises: an answer is yes or no.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]
Answers = AsyncGenerator[bool, None]
# A command in the container, within so many seconds: did it end with 0?
Run = Callable[[list[str], float], Awaitable[bool]]


@dataclass
class Tally:
    """Successes or failures in a row against the probe's thresholds. `state` is None until one is reached."""

    success_threshold: int = 1
    failure_threshold: int = 3
    state: bool | None = None
    _row: int = 0
    _last: bool | None = None

    def add(self, answer: bool) -> bool | None:
        self._row = self._row + 1 if answer is self._last else 1
        self._last = answer
        if self._row >= (self.success_threshold if answer else self.failure_threshold):
            self.state = answer
        return self.state


async def watch(probe: JSON, ip: str, ports: dict[str, int], run: Run) -> Answers:
    """Ask every `periodSeconds` and yield each change of state; never ends by itself."""
    tally = Tally(int(probe.get("successThreshold") or 1), int(probe.get("failureThreshold") or 3))
    period = float(probe.get("periodSeconds") or 10)
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
    while True:
        before = tally.state
        now = tally.add(await ask(probe, ip, ports, run))
        if now is not None and now is not before:
            yield now
        await asyncio.sleep(period)


async def ask(probe: JSON, ip: str, ports: dict[str, int], run: Run) -> bool:
    """One answer to the probe's `exec`, `httpGet` or `tcpSocket`. `ports` gives the numbers of named ports."""
    limit = float(probe.get("timeoutSeconds") or 1)
    if "exec" in probe:
        return await run(probe["exec"].get("command") or [], limit)
    if "httpGet" in probe:
        return await asyncio.to_thread(_http, probe["httpGet"], ip, ports, limit)
    if "tcpSocket" in probe:
        return await asyncio.to_thread(_tcp, probe["tcpSocket"], ip, ports, limit)
    return True


def _http(get: JSON, ip: str, ports: dict[str, int], limit: float) -> bool:
    host, port = get.get("host") or ip, _port(get["port"], ports)
    connection: http.client.HTTPConnection
    if str(get.get("scheme") or "HTTP").upper() == "HTTPS":
        context = ssl._create_unverified_context()  # as the kubelet does: it asks for health, not for identity
        connection = http.client.HTTPSConnection(host, port, timeout=limit, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=limit)
    headers = {item["name"]: item["value"] for item in get.get("httpHeaders") or []}
    try:
        connection.request("GET", "/" + (get.get("path") or "").lstrip("/"), headers=headers)
        return 200 <= connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tcp(get: JSON, ip: str, ports: dict[str, int], limit: float) -> bool:
    try:
        socket.create_connection((get.get("host") or ip, _port(get["port"], ports)), timeout=limit).close()
        return True
    except OSError:
        return False


def _port(port: Any, ports: dict[str, int]) -> int:
    return ports[port] if port in ports else int(port)
