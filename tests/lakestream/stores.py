"""Stores for the tests: a directory, and SeaweedFS's S3 server started on free ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BUCKET = "streams"
_PORTS = ("master", "volume", "filer", "s3", "admin", "s3.port.iceberg", "s3.port.lance")


@dataclass(frozen=True)
class Store:
    """Where streams are put, and the environment that a process needs to reach them."""

    kind: str
    root: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str] | None:
        return {key.lower(): value for key, value in self.environment.items()} or None

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}.lance"

    def through(self, port: int) -> Store:
        """The same store, reached through a proxy on `port`."""
        return Store(self.kind, self.root, self.environment | {"AWS_ENDPOINT": f"http://127.0.0.1:{port}"})


def free_ports(count: int) -> list[int]:
    """Ports free now, each with its gRPC twin 10,000 above, as SeaweedFS wants it."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe, socket.socket() as twin:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port > 50_000:
                port -= 25_000
            try:
                twin.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            if port not in found:
                found.append(port)
    return found


class Seaweed:
    """SeaweedFS's S3 server over a directory. Killed and started again it is at the same address, with what it had."""

    def __init__(self, directory: Path):
        self._data, self._log = directory / "weed", directory / "weed.log"
        self._data.mkdir(parents=True)
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._server: subprocess.Popen | None = None
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
        self.endpoint = f"http://127.0.0.1:{self._ports['s3']}"
        self.store = Store("s3", f"s3://{BUCKET}", keys | {"AWS_ENDPOINT": self.endpoint, "ALLOW_HTTP": "true"})

    def start(self) -> None:
        """Returns when the bucket is there, which is later than the port."""
        binary = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
        command = [
            binary, "mini", f"-dir={self._data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-bucket={BUCKET}", "-webdav=false", "-admin.ui=false",
            *(f"-{name}={port}" if "." in name else f"-{name}.port={port}" for name, port in self._ports.items()),
        ]  # fmt: skip
        with open(self._log, "a") as log:
            self._server = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self._data,
                env={"HOME": str(self._data), "PATH": os.environ["PATH"]},  # it keeps sockets and settings at home
            )  # fmt: skip
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            if self._server.poll() is not None:
                raise RuntimeError(f"weed ended with {self._server.returncode}: {self._log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(f"{self.endpoint}/{BUCKET}?list-type=2", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"weed has no bucket after 60 s: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()


@contextmanager
def seaweed(directory: Path) -> Iterator[Store]:
    """An S3 server over `directory` until the block ends."""
    server = Seaweed(directory)
    try:
        server.start()
        yield server.store
    finally:
        server.kill()
