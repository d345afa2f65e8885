"""The driver of this machine: bubblewrap, cgroups, a seccomp filter, file systems in memory.

Invariant: a driver has one launcher, started with its first sandbox, and when the driver is closed or its
process dies nothing of its sandboxes is left (`launcher`, `reaper`).
"""

from __future__ import annotations

import asyncio
import os
from typing import Self

from posttrain.errors import UserError
from posttrain.isolation import bubblewrap, seccomp
from posttrain.sandbox.line import Line
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.reaper import reap
from posttrain.sandbox.spec import Network, SandboxSpec

UID = 64999  # whom root becomes to start a sandbox: of Debian's range for applications' own use, and nobody's


class BubblewrapDriver:
    """To be used in one running event loop. `gateway` is where `network.mode=gateway` leads: host:port, or unix:/path.

    Raises UserError where this machine cannot keep code apart.
    """

    def __init__(self, *, gateway: str = ""):
        self._gateway = gateway
        program = bubblewrap.bubblewrap()
        reason = bubblewrap.refused(("--unshare-user", "--unshare-net")) or seccomp.unavailable()
        if reason or program is None:
            raise UserError(f"no sandbox can be made here: {reason}", remedy="see `posttrain doctor`")
        reap()
        self._program = program
        self._line: Line | None = None
        self._sandboxes: set[LocalSandbox] = set()

    @property
    def line(self) -> Line:
        if self._line is None or self._line.lost:
            self._line = Line(uid=UID, program=self._program, filter=seccomp.program())
        return self._line

    def sandbox(self, spec: SandboxSpec) -> LocalSandbox:
        if spec.network.mode is Network.gateway and not self._gateway:
            remedy = "tell the driver its address, or choose another network.mode"
            raise UserError("leads nowhere: no gateway is set", field="network.mode", value="gateway", remedy=remedy)
        for field, source in (("root", spec.root), *(("mounts", each) for each in spec.mounts.values())):
            if source and not os.path.exists(source):
                raise UserError("no such directory", field=field, value=source, remedy="give the path of one")
        for source in spec.files.values():
            if not os.path.exists(source):
                raise UserError(
                    "no such file", field="files", value=source, remedy="give the path of a file or directory"
                )
        return LocalSandbox(self.line, spec, gateway=self._gateway, alive=self._sandboxes)

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.stop() for sandbox in list(self._sandboxes)))
        if self._line is not None:
            await self._line.close()
            self._line = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
