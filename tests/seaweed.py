"""SeaweedFS's S3 server for the tests, on free ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_PORTS = ("master", "volume", "filer", "s3", "admin", "s3.port.iceberg", "s3.port.lance")
_ANY = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


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
    """The server over a directory, with one bucket. Killed and started again it is at the same address, with what it
    had. It asks for `keys`, where they are given; else it takes any."""

    def __init__(self, directory: Path, bucket: str, keys: Mapping[str, str] | None = None):
        self.bucket, self.keys, self._asked = bucket, dict(keys or _ANY), dict(keys or {})
        self._data, self._log = directory / "weed", directory / "weed.log"
        self._data.mkdir(parents=True)
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._server: subprocess.Popen | None = None
        self.address = f"127.0.0.1:{self._ports['s3']}"

    def start(self) -> None:
        """Returns when the bucket is there, which is later than the port."""
        binary = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
        command = [
            binary, "mini", f"-dir={self._data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-bucket={self.bucket}", "-webdav=false", "-admin.ui=false",
            *(f"-{name}={port}" if "." in name else f"-{name}.port={port}" for name, port in self._ports.items()),
        ]  # fmt: skip
        with open(self._log, "a") as log:
            self._server = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self._data,
                # it keeps sockets and settings at home, and asks for the keys that it finds
                env={"HOME": str(self._data), "PATH": os.environ["PATH"]} | self._asked,
            )  # fmt: skip
        client = boto3.client(
            "s3", endpoint_url=f"http://{self.address}", region_name="us-east-1",
            aws_access_key_id=self.keys["AWS_ACCESS_KEY_ID"], aws_secret_access_key=self.keys["AWS_SECRET_ACCESS_KEY"],
            config=Config(connect_timeout=2, read_timeout=2, retries={"max_attempts": 0}),
        )  # fmt: skip
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            if self._server.poll() is not None:
                raise RuntimeError(f"weed ended with {self._server.returncode}: {self._log.read_text()[-2000:]}")
            try:
                client.head_bucket(Bucket=self.bucket)
                return
            except (ClientError, BotoCoreError):
                time.sleep(0.1)
        raise RuntimeError(f"weed has no bucket after 60 s: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
