"""CUDA IPC: sources write into the destination's GPU memory, over NVLink where the two are on different GPUs of a host.

The handle of the memory goes over the control channel in the form that torch shares storages between processes in.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

import msgspec
import torch

from posttrain.errors import UserError
from posttrain.etha.transports.base import Remote, Runs, Transport, Window

Handle = tuple[int, bytes, int, int, bytes, int, bytes, bool]  # of UntypedStorage._share_cuda_


class IpcWindow(Window):
    def __init__(self, nbytes: int, device: torch.device):
        try:
            self.memory = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        except RuntimeError as problem:
            why = str(problem).splitlines()[0]
            raise UserError(f"cannot have {nbytes} bytes of GPU memory: {why}", field="transport") from None

    def invite(self, control: Connection) -> None:
        handle = self.memory.untyped_storage()._share_cuda_()
        offset, nbytes = self.memory.storage_offset(), len(self.memory)
        control.send_bytes(msgspec.msgpack.encode((handle, offset, nbytes)))

    def close(self) -> None:
        pass  # the memory goes with the last tensor that is a view of it


class IpcRemote(Remote):
    memory: torch.Tensor

    def __init__(self, handle: Handle, offset: int, nbytes: int):
        storage = torch.UntypedStorage._new_shared_cuda(*handle)
        self.memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
        self.memory.set_(storage, offset, (nbytes,), (1,))

    def flush(self, runs: Runs) -> None:
        torch.cuda.current_stream(self.memory.device).synchronize()

    def close(self) -> None:
        del self.memory


class CudaIpc(Transport):
    """`device` is the destination's own GPU; the source reaches it by the handle."""

    name = "cuda_ipc"
    family = "AF_UNIX"
    device: torch.device

    def __init__(self, device: str = "cuda"):
        if not torch.cuda.is_available():
            raise UserError("needs a CUDA device", field="transport", value=self.name, remedy="use shm on this host")
        self.device = torch.device(device)

    def window(self, nbytes: int) -> Window:
        return IpcWindow(nbytes, self.device)

    def open(self, control: Connection) -> Remote:
        handle, offset, nbytes = msgspec.msgpack.decode(control.recv_bytes(), type=tuple[Handle, int, int])
        return IpcRemote(handle, offset, nbytes)
