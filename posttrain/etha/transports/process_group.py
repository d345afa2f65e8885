"""torch.distributed between hosts: gloo for tensors in host memory, NCCL for those of GPUs.

Each source and destination have a process group of the two of them, beside the default groups of trainer and engine
and unknown to them. So a rank that dies takes nobody else's group with it, and who takes part may change at any time.
"""

from __future__ import annotations

from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed import PrefixStore, TCPStore

from posttrain.errors import UserError
from posttrain.etha.transports.base import Remote, Runs, Transport, Window

_STALLED_SECONDS = 10.0  # for one bucket; a peer that is dead is noticed at once, one that is stopped by this
_DESTINATION, _SOURCE = 0, 1
Group = Any  # torch.distributed's backends, which its own types do not let be called process groups


class ProcessGroup(Transport):
    """`device` is where the buckets lie: "cpu", or "cuda" for NCCL."""

    name = "process_group"
    device: torch.device

    def __init__(self, device: str = "cpu", host: str = "127.0.0.1", stalled_seconds: float = _STALLED_SECONDS):
        self.device = torch.device(device)
        self._host, self._timeout = host, timedelta(seconds=stalled_seconds)

    def window(self, nbytes: int) -> Window:
        try:
            memory = torch.zeros(nbytes, dtype=torch.uint8, device=self.device)
        except RuntimeError as problem:
            raise UserError(f"cannot have {nbytes} bytes: {str(problem).splitlines()[0]}", field="transport") from None
        return PairWindow(memory, self)

    def open(self, control: Connection) -> Remote:
        host, port = control.recv_bytes().decode().rsplit(":", 1)
        store = TCPStore(host, int(port), is_master=False, timeout=self._timeout)
        return PairRemote(self.group(store, _SOURCE))

    def serve(self, control: Connection) -> Group:
        """The destination's half of a group with the source at the other end of `control`."""
        store = TCPStore(self._host, 0, is_master=True, wait_for_workers=False, timeout=self._timeout)
        control.send_bytes(f"{self._host}:{store.port}".encode())
        return self.group(store, _DESTINATION)

    def group(self, store: TCPStore, rank: int) -> Group:
        named = PrefixStore("etha", store)
        try:
            if self.device.type == "cuda":
                options = torch.distributed.ProcessGroupNCCL.Options()
                options._timeout = self._timeout
                return torch.distributed.ProcessGroupNCCL(named, rank, 2, options)
            return torch.distributed.ProcessGroupGloo(named, rank, 2, self._timeout)
        except RuntimeError as problem:
            raise ConnectionError(f"no process group: {str(problem).splitlines()[0]}") from None


class PairWindow(Window):
    """What arrives goes through a buffer of one bucket for each source."""

    def __init__(self, memory: torch.Tensor, transport: ProcessGroup):
        self.memory, self._transport = memory, transport
        self._groups: WeakKeyDictionary[Connection, Group] = WeakKeyDictionary()
        self._room: WeakKeyDictionary[Connection, torch.Tensor] = WeakKeyDictionary()

    def invite(self, control: Connection) -> None:
        self._groups[control] = self._transport.serve(control)

    def take(self, control: Connection, nbytes: int) -> torch.Tensor:
        room = self._room.get(control)
        if room is None or len(room) < nbytes:
            room = self._room[control] = torch.empty(nbytes, dtype=torch.uint8, device=self.memory.device)
        data = room[:nbytes]
        _wait(self._groups[control].recv([data], _SOURCE, 0), data)
        return data

    def close(self) -> None:
        self._groups.clear()


class PairRemote(Remote):
    def __init__(self, group: Group):
        self._group = group

    def put(self, data: torch.Tensor) -> None:
        _wait(self._group.send([data], _DESTINATION, 0), data)

    def flush(self, runs: Runs) -> None:
        pass  # `put` returns when the bytes are sent

    def close(self) -> None:
        del self._group


def _wait(work: torch.distributed.Work, data: torch.Tensor) -> None:
    try:
        work.wait()
    except RuntimeError as problem:
        raise ConnectionError(str(problem).splitlines()[0]) from None
    if data.is_cuda:  # NCCL's wait is the stream's, not this thread's
        torch.cuda.current_stream(data.device).synchronize()
