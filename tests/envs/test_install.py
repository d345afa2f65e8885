"""envs/install: a directory that carries the marker is whole, whoever else installs and whatever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.envs.checkout import Checkout


def works(checkout: Checkout) -> bool:
    done = checkout.call("run", "control", "python", "-c", "import probe, laid_beside; print(probe.version)")
    return done.stdout == "1.0\n"


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The line of ours that says what was wrong: the last one."""
    assert done.returncode != 0
    line = done.stderr.splitlines()[-1]
    assert line.startswith("envs/install: ")
    return line


def test_installs_once(checkout: Checkout) -> None:
    first = checkout.call("install", "control")
    assert first.returncode == 0, first.stderr
    assert works(checkout)
    marker = checkout.where() / "environment"
    written = marker.stat().st_mtime_ns
    started = time.monotonic()
    again = checkout.call("install", "control")
    assert (again.returncode, again.stderr) == (0, f"envs/install: control is installed: {checkout.where()}\n")
    assert time.monotonic() - started < 2
    assert marker.stat().st_mtime_ns == written


def test_installers_at_once_take_turns(checkout: Checkout) -> None:
    processes = [checkout.start("install", "control") for _ in range(3)]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum("installed after" in text for text in said) == 1
    assert works(checkout)


def test_what_killed_installers_left_is_built_anew(checkout: Checkout) -> None:
    """Killed later and later, with all that it had started, until one gets through."""
    killed = 0
    for tenths in range(1, 100):
        process = checkout.start("install", "control")
        try:
            process.communicate(timeout=tenths / 10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
            killed += 1
        if (checkout.where() / "environment").exists():
            break
    assert killed >= 2
    assert works(checkout)
    assert checkout.call("install", "control").returncode == 0


def test_a_killed_installer_keeps_its_turn_until_its_children_are_gone(checkout: Checkout) -> None:
    """Only the shell is killed; what it had started may still be writing, so nobody else may begin."""
    checkout.variables["POSTTRAIN_PYTHON"] = str(slow_python(checkout))
    first = checkout.start("install", "control")
    time.sleep(0.5)
    os.kill(first.pid, signal.SIGKILL)
    started = time.monotonic()
    second = checkout.call("install", "control")
    assert second.returncode == 0, second.stderr
    assert "waiting for another envs/install" in second.stderr
    assert time.monotonic() - started > 1
    assert works(checkout)


def slow_python(checkout: Checkout) -> Path:
    """The machine's Python, taking two seconds the first time that it is asked for anything."""
    script = checkout.base / "slow"
    script.write_text(f'#!/bin/sh\n[ -f {script}.asked ] || {{ touch {script}.asked; sleep 2; }}\nexec python3 "$@"\n')
    script.chmod(0o755)
    return script


def test_another_environment_leaves_the_digest_alone(checkout: Checkout) -> None:
    before, others = checkout.where(), checkout.where("rollout")
    checkout.lock("dev", {"other": "2.0"})
    assert checkout.where() == before
    checkout.lock("control", {"probe": "1.1"})
    assert checkout.where() != before
    assert checkout.where("rollout") == others


def test_the_digest_covers_the_conda_layer_of_that_environment_alone(checkout: Checkout) -> None:
    lock = checkout.base / "pixi.lock"
    before = {name: checkout.where(name) for name in ("control", "cpu", "train", "rollout")}
    head, section, rest = lock.read_text().partition("  train:\n")
    lock.write_text(head + section + rest.replace("pytorch-2", "pytorch-3", 1))
    changed = {name for name, directory in before.items() if checkout.where(name) != directory}
    assert changed == {"train"}


def test_a_missing_wheel_is_named(checkout: Checkout) -> None:
    checkout.lock("control", {"probe": "1.0", "gone": "1.0"})
    (checkout.wheels / "gone-1.0-py3-none-any.whl").unlink()
    assert "gone" in one_line(checkout.call("install", "control"))
    assert not (checkout.where() / "environment").exists()


def test_a_wheel_that_is_not_the_locked_one_is_refused(checkout: Checkout) -> None:
    with open(checkout.wheels / "probe-1.0-py3-none-any.whl", "ab") as wheel:
        wheel.write(b"\0")
    line = one_line(checkout.call("install", "control"))
    assert "probe" in line and "ash" in line
    assert not (checkout.where() / "environment").exists()


def test_an_environment_that_does_not_work_is_not_marked(checkout: Checkout) -> None:
    (checkout.envs / "control.in").write_text("# try: probe, nowhere_to_be_found\n")
    line = one_line(checkout.call("install", "control"))
    assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'" in line
    assert not (checkout.where() / "environment").exists()


def test_a_python_that_does_not_fit_is_told(checkout: Checkout) -> None:
    line = one_line(checkout.call("install", "control", POSTTRAIN_PYTHON="/bin/false"))
    assert "no Python 3.11 to 3.14 found" in line and "POSTTRAIN_PYTHON" in line


def test_a_root_that_cannot_be_written_is_told(checkout: Checkout) -> None:
    line = one_line(checkout.call("install", "control", POSTTRAIN_ENVS="/proc/nowhere"))
    assert "cannot write to /proc/nowhere" in line


def test_gpu_environments_ask_for_pixi(checkout: Checkout) -> None:
    assert "train needs pixi on PATH" in one_line(checkout.call("install", "train", PATH="/usr/bin:/bin"))


PIXI = """#!/bin/sh
set -eu
verb=$1
while [ $# -gt 0 ]; do
    case $1 in --manifest-path) at=${2%/*} ;; -e) environment=$2 ;; esac
    shift
done
prefix=$at/.pixi/envs/$environment
case $verb in
    install) python3 -m venv "$prefix" && ln -s "$POSTTRAIN_ENVS"/tools/*/bin/uv "$prefix/bin/uv" ;;
    shell-hook) echo "export CONDA_PREFIX=$prefix CXX=$prefix/bin/g++ PATH=$prefix/bin:\\$PATH" ;;
esac
"""


def test_with_pixi_the_conda_layer_lies_below(checkout: Checkout) -> None:
    """pixi is on no registry: this one makes a prefix and prints an activation, as the real one would."""
    assert checkout.call("install", "control").returncode == 0  # for its uv
    pixi = checkout.base / "bin" / "pixi"
    pixi.write_text(PIXI)
    pixi.chmod(0o755)
    checkout.lock("train", {"probe": "1.0"})
    done = checkout.call("install", "train", PATH=f"{pixi.parent}:{checkout.variables['PATH']}")
    assert done.returncode == 0, done.stderr
    show = "import os, sys, probe; print(sys.prefix, sys.base_prefix, os.environ['CXX'], os.environ['PATH'])"
    seen = checkout.call("run", "train", "python", "-c", show).stdout.split()
    where = checkout.where("train")
    assert (seen[0], seen[2]) == (str(where), f"{where}/conda/.pixi/envs/train/bin/g++")
    assert seen[0] != seen[1]
    assert seen[3].startswith(f"{where}/bin:")


def test_an_unknown_environment_is_told(checkout: Checkout) -> None:
    done = checkout.call("install", "gpu")
    assert (done.returncode, done.stderr) == (
        2, "envs: no such environment: gpu; known: control cpu dev train rollout\n",
    )  # fmt: skip
