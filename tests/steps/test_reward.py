"""The step reward as a process: it serves with the workspace's paths, and ends in good order when it is told to."""

from __future__ import annotations

import signal
import socket
import subprocess

from posttrain.lakestream import Stream
from posttrain.reward.api import Ask
from posttrain.reward.client import RewardClient
from tests.processes import free_port
from tests.steps.conftest import ENVIRONMENT, ROOT, command, complaint, run_step


def test_it_gives_verdicts_and_leaves_them_in_the_stream_when_it_ends(tmp_path):
    port = free_port()
    config = {"port": port, "host": "127.0.0.1", "service": {"stream": "lake/verdicts"}}
    process = subprocess.Popen(
        command(tmp_path, "reward", {}, config, run="r", step="reward"), cwd=ROOT, env=ENVIRONMENT
    )
    try:
        with RewardClient(f"http://127.0.0.1:{port}", patience=120) as client:
            asks = [
                Ask(task="t", trajectory=f"t/{n}", verifier="exact", answer="3", completion=f"<answer>{n}</answer>")
                for n in range(5)
            ]
            assert [v.reward for v in client.verdicts(asks)] == [0, 0, 0, 1, 0]
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 143  # told to end, as any service
    assert Stream.open(tmp_path / "lake/verdicts").snapshot().rows == 5
    assert (tmp_path / "verdicts.db").exists()


def test_what_it_cannot_do_is_one_line(tmp_path):
    said = complaint(run_step(tmp_path, "reward", {}, {"service": {"streem": "x"}}))
    assert "reward.service.streem: unknown key; did you mean service.stream?" in said
    secret = {"service": {"database": "postgresql://me:s3cret@db/verdicts"}}
    said = complaint(run_step(tmp_path, "reward", {}, secret))
    assert "service.database: holds a password" in said and "s3cret" not in said
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = complaint(run_step(tmp_path, "reward", {}, {"port": port, "host": "127.0.0.1"}))
    assert f"reward.port: cannot listen on 127.0.0.1: address already in use (got {port})" in said
