"""How bytes get from a source's memory into a destination's: shm, process_group, cuda_ipc, all behind base.py."""

from __future__ import annotations

from posttrain.errors import UserError
from posttrain.etha.transports.base import Transport


def named(name: str | Transport) -> Transport:
    """The transport of this name. Raises UserError for one that there is not."""
    if isinstance(name, Transport):
        return name
    if name == "shm":
        from posttrain.etha.transports.shm import Shm

        return Shm()
    if name == "process_group":
        from posttrain.etha.transports.process_group import ProcessGroup

        return ProcessGroup()
    if name == "cuda_ipc":
        from posttrain.etha.transports.cuda_ipc import CudaIpc

        return CudaIpc()
    known = "shm, process_group, cuda_ipc"
    raise UserError("is no transport", field="transport", value=name, remedy=f"one of {known}")
