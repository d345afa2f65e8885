"""What a transport is: a way into a window, which is memory of a destination that its sources fill.

Modelled on RDMA: the destination registers memory (`Window`), hands a source what it takes to reach it (`invite`), and
the source writes bytes at offsets (`Remote`). That a bucket is complete is said beside the transport, on the control
channel, so that one without remote writes (`Remote.memory` is None: sockets, torch.distributed) moves bytes by `put`
and `Window.take`, and one with them (shared memory, CUDA IPC; nixl and Mooncake could) has nothing to do there.

Invariant: a window that an attempt leaves unfinished is never used again, so that a source that was believed dead and
goes on writing harms nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from posttrain.etha.transports.digests import digest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Runs = Sequence[tuple[int, int]]  # (offset, bytes) in a window, in the order of a bucket's bytes


class Window(ABC):
    """A destination's memory: `memory` is uint8, of one dimension."""

    memory: Tensor

    @abstractmethod
    def invite(self, control: Connection) -> None:
        """Let the source at the other end of `control` reach the window; called while that source runs `open`."""

    def take(self, control: Connection, nbytes: int) -> Tensor | None:
        """The bytes of a bucket that a source sends by `put`; None where sources write by themselves."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Give the memory up; views of it that are still held stay valid."""


class Remote(ABC):
    """A window as one source sees it; `memory` is the window's where the source can write it in place, else None."""

    memory: Tensor | None = None

    def put(self, data: Tensor) -> None:
        """Send a bucket's bytes (uint8), which the destination takes; returns once `data` may be overwritten."""
        raise NotImplementedError(f"{type(self).__name__} is written in place")

    @abstractmethod
    def flush(self, runs: Runs) -> None:
        """Return once the destination would see all that was written at `runs`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the window."""


class Transport(ABC):
    """`family` is the control channel's: AF_UNIX within a host, AF_INET between hosts. `device` is where buckets lie
    that are sent by `put`."""

    name: str
    device: torch.device | str = "cpu"
    family: str = "AF_INET"

    @abstractmethod
    def window(self, nbytes: int) -> Window:
        """Memory of at least `nbytes`. Raises UserError where there is not so much."""

    @abstractmethod
    def open(self, control: Connection) -> Remote:
        """The window of the destination at the other end of `control`, which runs `Window.invite` meanwhile."""

    def digest(self, memory: Tensor, runs: Runs) -> int:
        """64 bits that stand for the bytes of the runs, one after the other; the same on both sides."""
        return digest(memory, runs)
