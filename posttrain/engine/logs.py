"""The log of a container: stdout and stderr in one file, and the end of main's stdout apart.

A container writes into its log file itself, so that its log goes on whatever happens to the
supervisor. Only where a result is wanted does main's stdout come through the supervisor.
"""

from __future__ import annotations

import os

RESULT_BYTES = 262_144  # of a long result the last so many bytes are kept, as the controller does


def path_of(directory: str, container: str) -> str:
    return f"{directory}/logs/{container}"


def open_for_writing(directory: str, container: str) -> int:
    """A descriptor that appends to the container's log."""
    return os.open(path_of(directory, container), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def last_line(directory: str, container: str) -> str:
    """The end of a log, for a message about a failure."""
    with open(path_of(directory, container), "rb") as source:
        source.seek(max(0, os.path.getsize(source.name) - 1000))
        return (source.read().decode(errors="replace").splitlines() or [""])[-1]


class Capture:
    """Copies a stream into a log and keeps its end: the result."""

    def __init__(self, log: int):
        self._log, self._tail = log, bytearray()
        self.problem: OSError | None = None

    def feed(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > 2 * RESULT_BYTES:
            del self._tail[: -RESULT_BYTES - 1]
        while data and self.problem is None:
            try:
                data = data[os.write(self._log, data) :]
            except OSError as problem:  # the container goes on; the pod says at its end that its log is not whole
                self.problem = problem

    def result(self) -> str:
        """What was written, without one newline at its end, and of that the end."""
        return _decoded(bytes(self._tail).removesuffix(b"\n")[-RESULT_BYTES:])


def without_newline(data: bytes) -> str:
    """The text without the one newline that a command puts at its end."""
    return _decoded(data.removesuffix(b"\n"))


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace")
