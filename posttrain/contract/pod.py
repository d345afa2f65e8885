"""Where the pod that a process runs in is reached. On one machine, too, the engine gives each pod an address."""

from __future__ import annotations

import os

EVERY = "0.0.0.0"


def own_host(asked: str = "") -> str:
    """The address that a service listens on: what is asked for, else the pod's own, else every one."""
    return asked or os.environ.get("POD_IP") or EVERY


def reached_at(host: str) -> str:
    """Where who listens on `host` is reached, by a process beside it where that is every address."""
    return "127.0.0.1" if host == EVERY else host
