"""What a sandbox is made of and may use: one declaration for every driver.

Invariant: a spec is data. Two equal specs are the same kind of sandbox (`digest`), which is what a
warm pool keeps apart, and whatever a spec does not grant a sandbox does not have.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from posttrain.contract.config import resolve
from posttrain.errors import UserError
from posttrain.units import quantity

WORKSPACE = "/workspace"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"(?P<host>[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")


class Network(StrEnum):
    """`none`: an empty loopback. `gateway`: one address, the model gateway's. `allow`: a proxy to a list."""

    none = "none"
    gateway = "gateway"
    allow = "allow"


@dataclass
class NetworkPolicy:
    """`allow` holds `host:port`; a host may begin with `*.` for every name below it."""

    mode: Network = Network.none
    allow: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if bool(self.allow) != (self.mode is Network.allow):
            remedy = "give network.mode=allow and the addresses in network.allow, or neither"
            raise UserError("does not fit network.mode", field="network.allow", value=list(self.allow), remedy=remedy)
        for entry in self.allow:
            match = _HOST.fullmatch(entry)
            if match is None or not 0 < int(match["port"]) < 65536 or "*" in match["host"].removeprefix("*."):
                remedy = "write host:port, as in pypi.org:443 or *.example.org:443"
                raise UserError("is no address", field="network.allow", value=entry, remedy=remedy)


@dataclass
class SandboxSpec:
    """Defaults are those of the deployment guide: 4 cores, 8 GiB, 600 s, no network, nothing kept.

    `root` is a directory that becomes the sandbox's file system, writes going to a copy of it that ends with
    the sandbox; without one the programs of this machine are seen, read-only, and nothing else of it. `image`
    is what a cluster starts. `mounts` are further directories of this machine, read-only. `files` are laid into
    the workspace at the start, a path inside by a path of this machine; `collect` names what is taken out
    (`Sandbox.collect`). Times are seconds of the whole sandbox, sizes Kubernetes quantities.
    """

    image: str = ""
    root: str = ""
    mounts: dict[str, str] = field(default_factory=dict)
    cpu: float = 4.0
    memory: str = "8Gi"
    pids: int = 512
    disk: str = "1Gi"
    wall_seconds: float = 600.0
    output: str = "4Mi"  # of each stream of one call
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    files: dict[str, str] = field(default_factory=dict)
    collect: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: int = 1000
    workdir: str = WORKSPACE

    def __post_init__(self) -> None:
        for name, least in (("cpu", 0.01), ("pids", 8), ("wall_seconds", 0.1), ("user", 0)):
            if getattr(self, name) < least:
                raise UserError(f"must be at least {least:g}", field=name, value=getattr(self, name))
        for name, least in (("memory", 16 << 20), ("disk", 1 << 12), ("output", 1)):
            if quantity(getattr(self, name), name) < least:
                raise UserError(f"must be at least {least} bytes", field=name, value=getattr(self, name))
        for name in self.environment:
            if not _NAME.fullmatch(name):
                raise UserError("is no name of a variable", field="environment", value=name)
        for name, paths in (("mounts", [*self.mounts]), ("workdir", [self.workdir])):
            for path in paths:
                if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
                    remedy = "write an absolute path without . and .., below /"
                    raise UserError("is no path of a sandbox", field=name, value=path, remedy=remedy)
        for name, paths in (("files", [*self.files]), ("collect", self.collect)):
            for path in paths:
                if path.startswith("/") or ".." in path.split("/") or not path:
                    remedy = "write a path relative to the workspace, without .."
                    raise UserError("leaves the workspace", field=name, value=path, remedy=remedy)

    @property
    def memory_bytes(self) -> int:
        return int(quantity(self.memory, "memory"))

    @property
    def disk_bytes(self) -> int:
        return int(quantity(self.disk, "disk"))

    @property
    def output_bytes(self) -> int:
        return int(quantity(self.output, "output"))

    @property
    def digest(self) -> str:
        """The same for equal specs, 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def spec_from(*layers: Mapping[str, Any], where: str = "sandbox") -> SandboxSpec:
    """The defaults with `layers` laid over them; UserError names the key of what does not fit."""
    return resolve(SandboxSpec, *map(dict, layers), where=where)
