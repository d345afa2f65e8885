"""The coordinator as a step: it goes on where it was when it is started again in its directory."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.etha.coordinator.client import EthaClient
from posttrain.etha.slices import Box, Want
from posttrain.etha.wire import Address, JoinRank, RankBeat, RankReport
from tests.processes import free_port
from tests.steps.conftest import ENVIRONMENT, ROOT, command, complaint, run_step


@contextmanager
def coordinator(workspace: Path, port: int) -> Iterator[EthaClient]:
    config = {"port": port, "host": "127.0.0.1"}
    process = subprocess.Popen(command(workspace, "etha", {}, config, run="r", step="etha"), cwd=ROOT, env=ENVIRONMENT)
    try:
        with EthaClient(f"http://127.0.0.1:{port}", patience=60) as client:
            client.wait_ready(120)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    port, want = free_port(), Want("w", Box((0,), (4,)), "float32")
    with coordinator(tmp_path, port) as client:
        joined = client.join_rank("a", 0, JoinRank(1, (want,), Address("shm", "\0nowhere", "secret"), applied=3))
        assert client.wants("a/0") == (want,)
    with coordinator(tmp_path, port) as client:
        told = client.rank_beats("a/0", RankBeat(joined.epoch, RankReport(1, applied=3)))
        assert told.orders.receive is None
        (replica,) = client.versions().replicas
        assert (replica.version, replica.traffic, replica.phase) == (3, True, "serving")
        assert b"secret" not in client.send("GET", "/versions").content
        assert "posttrain_etha_replica_version" in client.send("GET", "/metrics").text
        with pytest.raises(UserError, match="another process has taken the place"):
            client.rank_beats("a/0", RankBeat(joined.epoch - 1, RankReport(1)))
        with pytest.raises(UserError, match=r"`\$\.wants` is missing|required field `wants`"):
            client.send("POST", "/v1/replicas/a/0", '{"ranks": 1}')


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    assert "etha: pause: is no policy" in complaint(run_step(tmp_path, "etha", {}, {"etha": {"pause": "stop"}}))
