"""`posttrain.doctor`: what is judged from plain values, and what is found on the machine at hand."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from posttrain import doctor
from posttrain.doctor import GIB, Check


@pytest.mark.parametrize(
    ("check", "state", "found"),
    [
        (doctor.system("Linux", "x86_64", "3.12.1"), "ok", "Linux x86_64, Python 3.12.1"),
        (doctor.system("Linux", "aarch64", "3.12.1"), "warn", "aarch64"),
        (doctor.system("Darwin", "arm64", "3.12.1"), "fail", "Darwin"),
        (doctor.cores(2, None), "ok", "2"),
        (doctor.cores(64, 2.5), "ok", "2.5 (of 64, by the cgroup's quota)"),
        (doctor.cores(64, 1.5), "fail", "1.5 (of 64"),
        (doctor.cores(1, None), "fail", "1"),
        (doctor.memory(24 * GIB, None), "ok", "24.0 GiB"),
        (doctor.memory(24 * GIB, 4 * GIB), "warn", "4.0 GiB (of 24.0, by the cgroup)"),
        (doctor.memory(24 * GIB, 2**63), "ok", "24.0 GiB"),  # v1 spells no limit as a huge one
        (doctor.vllm_on_cpu({"avx2", "avx512f", "avx512_bf16"}), "ok", "AVX-512 with bf16"),
        (doctor.vllm_on_cpu({"avx2", "avx512f"}), "warn", "without bf16"),
        (doctor.vllm_on_cpu({"avx2"}), "warn", "no AVX-512"),
        (doctor.vllm_on_cpu({"sse4_2"}), "fail", "neither"),
        (doctor.disk(Path("/w"), 100 * GIB), "ok", "100.0 GiB free at /w"),
        (doctor.disk(Path("/w"), 5 * GIB), "warn", "5.0 GiB"),
    ],
)
def test_judgements(check: Check, state: str, found: str) -> None:
    assert (check.state, found in check.found) == (state, True)
    assert bool(check.advice) == (state != "ok")


def test_the_nearest_mount_decides_the_file_system() -> None:
    mounts = ["/dev/vda / ext4 rw 0 0", "JuiceFS:x /work fuse.juicefs rw 0 0", "none /work/my\\040run tmpfs rw 0 0"]
    assert doctor.file_system(Path("/home"), mounts).found == "ext4"
    assert doctor.file_system(Path("/work/lake"), mounts).found == "fuse.juicefs"
    assert doctor.file_system(Path("/work/my run/a"), mounts).state == "warn"


def test_this_machine_is_examined_and_left_alone(tmp_path: Path) -> None:
    found = doctor.checks(tmp_path / "not" / "there")
    assert len({check.name for check in found}) == len(found) >= 14
    assert all(check.found and bool(check.advice) >= (check.state != "ok") for check in found)
    assert not list(tmp_path.iterdir())


def test_a_workspace_that_cannot_be_written_fails() -> None:
    check = doctor.writing(Path("/proc"))
    assert (check.state, check.found.startswith("/proc: ")) == ("fail", True)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        assert doctor.port(holder.getsockname()[1]).state == "warn"


def test_fuse_needs_its_device_and_for_a_normal_user_its_helper(tmp_path: Path) -> None:
    device = tmp_path / "fuse"
    assert doctor.fuse(device).state == "warn"
    device.touch()
    assert doctor.fuse(device, lambda name: f"/bin/{name}").state == "ok"
    assert doctor.fuse(device, lambda name: None).state == ("warn" if os.geteuid() else "ok")


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == "Bearer right" and self.path == "/api/v1/version"
        self.send_response(200 if allowed else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_an_argo_server_is_asked(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGO_SERVER", server)
    monkeypatch.setenv("ARGO_SECURE", "false")
    monkeypatch.setenv("ARGO_TOKEN", "Bearer right")
    assert doctor.cluster() == Check("cluster", "ok", f"http://{server} answers")
    monkeypatch.setenv("ARGO_TOKEN", "Bearer wrong")
    refused = doctor.cluster()
    assert (refused.state, refused.found) == ("warn", f"http://{server} says 401")
    assert "wrong" not in str(refused)
    monkeypatch.setenv("ARGO_SERVER", "127.0.0.1:1")
    assert "does not answer" in doctor.cluster().found
    monkeypatch.setenv("ARGO_SECURE", "perhaps")
    assert doctor.cluster().found.startswith("ARGO_SECURE: is neither true nor false")
