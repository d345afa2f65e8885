"""envs/run: what a command finds when it starts in an environment."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.envs.checkout import Checkout

SHOW = "import json, os, sys; print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ), 'path': sys.path}))"


@pytest.fixture
def installed(checkout: Checkout) -> Checkout:
    assert checkout.call("install", "control").returncode == 0
    return checkout


def test_arguments_arrive_as_they_were(installed: Checkout) -> None:
    given = ["two words", "", "a\nb", "$HOME", '{"learning_rate": 1e-4}', "*"]
    assert json.loads(installed.call("run", "control", "python", "-c", SHOW, *given).stdout)["argv"] == given


def test_the_process_knows_its_environment(installed: Checkout) -> None:
    seen = json.loads(installed.call("run", "control", "python", "-c", SHOW).stdout)
    where = installed.where()
    assert seen["env"]["POSTTRAIN_ENV"] == "control"
    assert seen["env"]["POSTTRAIN_ENV_DIGEST"].removeprefix("sha256:").startswith(where.parent.name)
    assert f"digest: {seen['env']['POSTTRAIN_ENV_DIGEST']}\n" in (where / "environment").read_text()
    assert seen["env"]["PATH"].startswith(f"{where}/bin:{installed.base}/bin:")
    assert str(installed.base) in seen["path"]


def test_what_is_set_stays_set(installed: Checkout) -> None:
    given = {"HF_HUB_OFFLINE": "0", "PYTHONHASHSEED": "7", "PYTHONPATH": "/elsewhere"}
    seen = json.loads(installed.call("run", "control", "python", "-c", SHOW, **given).stdout)["env"]
    assert (seen["HF_HUB_OFFLINE"], seen["PYTHONHASHSEED"]) == ("0", "7")
    assert seen["PYTHONPATH"] == f"{installed.base}:/elsewhere"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in seen


def test_a_cpu_environment_is_told_how_vllm_runs_without_a_gpu(checkout: Checkout) -> None:
    pretend(checkout, "cpu")
    seen = checkout.call("run", "cpu", "env").stdout.splitlines()
    assert {"VLLM_CPU_KVCACHE_SPACE=1", "TORCH_COMPILE_DISABLE=1"} <= set(seen)
    bound = next(line for line in seen if line.startswith("VLLM_CPU_OMP_THREADS_BIND=")).partition("=")[2]
    assert cores(bound) == os.sched_getaffinity(0)


def pretend(checkout: Checkout, name: str) -> None:
    where = checkout.where(name)
    (where / "bin").mkdir(parents=True)
    (where / "bin" / "python").symlink_to("/bin/true")
    (where / "environment").write_text("")


def cores(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_the_exit_code_is_the_commands(installed: Checkout) -> None:
    assert installed.call("run", "control", "sh", "-c", "exit 64").returncode == 64


def test_signals_reach_the_command_itself(installed: Checkout) -> None:
    code = "import os, signal, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = installed.start("run", "control", "python", "-c", code)
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_it_works_from_any_directory_and_through_a_relative_path(installed: Checkout, tmp_path: Path) -> None:
    for directory, script in ((tmp_path, "checkout/envs/run"), (installed.envs, "./run"), (installed.base, "envs/run")):
        done = installed.call(
            "run", "control", "sh", "-c", f"cd {directory} && {script} control python -c 'import probe'"
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_it_costs_milliseconds(installed: Checkout) -> None:
    def seconds(*command: str) -> float:
        spent = []
        for _ in range(9):
            started = time.perf_counter()
            assert installed.call("run", *command).returncode == 0
            spent.append(time.perf_counter() - started)
        return statistics.median(spent)

    assert seconds("control", "true") < 0.1


def test_what_is_not_installed_is_told(checkout: Checkout) -> None:
    done = checkout.call("run", "control", "python")
    assert (done.returncode, done.stderr) == (
        2, f"envs/run: the environment control is not installed in {checkout.root}; run: envs/install control\n",
    )  # fmt: skip


def test_an_interpreter_that_is_gone_is_told_and_mended(installed: Checkout) -> None:
    python = installed.where() / "bin" / "python"
    python.unlink()
    python.symlink_to("/gone/python3")
    assert "is not installed" in installed.call("run", "control", "true").stderr
    assert installed.call("install", "control").returncode == 0
    assert installed.call("run", "control", "python", "-c", "import probe").returncode == 0
