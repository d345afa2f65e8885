"""Pods as real processes. Every test that takes `pods` runs once for each driver."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posttrain.engine import isolation
from posttrain.engine.pods import PodRunner
from posttrain.engine.podspec import PodSpec, PodStatus
from tests.seaweed import Seaweed

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
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "sesame-open"}
    server = Seaweed(tmp_path_factory.mktemp("weed"), "kept", keys)
    try:
        server.start()
        yield {
            "endpoint": server.address, "insecure": True, "bucket": server.bucket,
            "accessKey": keys["AWS_ACCESS_KEY_ID"], "secretKey": keys["AWS_SECRET_ACCESS_KEY"],
        }  # fmt: skip
    finally:
        server.kill()
