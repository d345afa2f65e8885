"""Which phase a pod ends in, and with which words. Pure; the controller's rules.

Main decides before what surrounds it, and that before the sidecars. Failed is what the user's own
containers did, Error what happened around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EXECUTOR = 64  # the exit code of what surrounds main when it cannot go on
DEADLINE = "Pod was active on the node longer than the specified deadline"
STOPPED = "the pod was stopped"
_ENDED_BY_US = (0, 137, 143)  # how a sidecar leaves that was told to

Phase = Literal["Succeeded", "Failed", "Error"]


@dataclass(frozen=True)
class Ended:
    """A container that has ended. `word` is what it left in its termination log."""

    name: str
    code: int
    out_of_memory: bool = False
    word: str = ""

    @property
    def reason(self) -> str:
        if self.out_of_memory:
            return "OOMKilled"
        return "Error" if self.code else "Completed"

    @property
    def message(self) -> str:
        return f"{self.name}: {self.reason} (exit code {self.code})" + (f": {self.word}" if self.word else "")


def decide(
    main: Ended | None,
    *,
    init: Ended | None = None,
    sidecars: list[Ended] | None = None,
    before: str = "",
    after: str = "",
    daemon: bool = False,
    cut_short: Literal["", "deadline", "stop"] = "",
) -> tuple[Phase, str]:
    """Phase and message of a pod.

    `init` is the init container that failed; `before` says why main could not be started, `after`
    why its outputs could not be kept; `cut_short` says who ended the pod, where it did not by itself.
    """
    if cut_short:
        return "Failed", DEADLINE if cut_short == "deadline" else STOPPED
    if before:
        return "Error", f"init: Error (exit code {EXECUTOR}): {before}"
    if init is not None:
        return "Failed", init.message
    assert main is not None
    if main.code or main.out_of_memory:
        return "Failed", main.message
    if after:
        return "Error", f"wait: Error (exit code {EXECUTOR}): {after}"
    bad = next((s for s in sidecars or [] if s.code not in _ENDED_BY_US), None)
    if bad is not None:
        return "Failed", bad.message
    return ("Failed" if daemon else "Succeeded"), ""  # a daemon is not meant to leave by itself
