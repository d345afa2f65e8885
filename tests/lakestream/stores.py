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
# an own home: the server keeps sockets and settings there
_PORTS = ("master", "volume", "filer", "s3", "s3.port.iceberg", "s3.port.lance")


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


@contextmanager
def seaweed(directory: Path) -> Iterator[Store]:
    """An S3 server over `directory` until the block ends."""
    binary = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
    master, volume, filer, s3, iceberg, lance = free_ports(6)
    data = directory / "weed"
    data.mkdir(parents=True)
    log = open(directory / "weed.log", "w")  # noqa: SIM115 - as long as the server
    server = subprocess.Popen(
        [
            binary, "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-bucket={BUCKET}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
            f"-s3.port={s3}", f"-s3.port.iceberg={iceberg}", f"-s3.port.lance={lance}", "-webdav=false",
            "-admin.ui=false", f"-admin.port={free_ports(1)[0]}",
        ],
        stdout=log, stderr=subprocess.STDOUT, cwd=data, env={"HOME": str(data), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    try:
        _wait_for_bucket(server, s3, directory / "weed.log")
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
        endpoint = {"AWS_ENDPOINT": f"http://127.0.0.1:{s3}", "ALLOW_HTTP": "true"}
        yield Store("s3", f"s3://{BUCKET}", keys | endpoint)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _wait_for_bucket(server: subprocess.Popen, port: int, log: Path) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if server.poll() is not None:
            raise RuntimeError(f"weed ended with {server.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{BUCKET}?list-type=2", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"weed has no bucket after 60 s: {log.read_text()[-2000:]}")
