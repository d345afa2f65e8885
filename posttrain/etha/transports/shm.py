"""Shared memory of one host: the sources write into the destination's own memory, so that bytes are copied once.

The memory is an anonymous file (memfd) whose descriptor goes over the Unix socket of the control channel. It has no
name to collide or to be left behind: once no process has it, it is gone, whoever was killed.
"""

from __future__ import annotations

import mmap
import os
from multiprocessing import reduction
from multiprocessing.connection import Connection

import torch

from posttrain.errors import UserError
from posttrain.etha.transports.base import Remote, Runs, Transport, Window


class ShmWindow(Window):
    def __init__(self, nbytes: int):
        self._file = os.memfd_create("etha", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._file, nbytes)
            os.posix_fallocate(self._file, 0, nbytes)  # else what is lacking shows as SIGBUS, in the middle of a copy
        except OSError as problem:
            os.close(self._file)
            why = f"cannot have {nbytes} bytes of shared memory: {str(problem.strerror).lower()}"
            raise UserError(why, remedy="raise the memory limit, or receive with mode=direct") from None
        self.memory = _mapped(self._file, nbytes)

    def invite(self, control: Connection) -> None:
        reduction.send_handle(control, self._file, 0)

    def close(self) -> None:
        os.close(self._file)


class ShmRemote(Remote):
    memory: torch.Tensor

    def __init__(self, file: int):
        try:
            self.memory = _mapped(file, os.fstat(file).st_size)
        finally:
            os.close(file)

    def flush(self, runs: Runs) -> None:
        pass  # the memory is one, and what is said on the control channel is said after it was written

    def close(self) -> None:
        del self.memory


class Shm(Transport):
    name = "shm"
    family = "AF_UNIX"

    def window(self, nbytes: int) -> Window:
        return ShmWindow(nbytes)

    def open(self, control: Connection) -> Remote:
        return ShmRemote(reduction.recv_handle(control))


def _mapped(file: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(file, nbytes), dtype=torch.uint8)  # which keeps the mapping as long as it lives
