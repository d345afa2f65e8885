"""Tracking against a real MLflow store: what is logged, who may write at once, and that it can break nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from posttrain import tracking
from posttrain.contract.context import StepContext
from posttrain.contract.record import Record
from posttrain.tracking import UNREGISTERED, parameters, register, track

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def local_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", tracking.SWITCH):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


def finished(workspace: Path, run: str = "r", step: str = "sft", points: int = 3) -> tuple[StepContext, Record]:
    context = StepContext(workspace, run, step, seed=3)
    context.directory.mkdir(parents=True, exist_ok=True)
    for update in range(points):
        context.log(update, loss=1 / (update + 1))
    (context.directory / "summary.json").write_text("{}")
    (context.directory / "model.safetensors").write_bytes(b"weights")
    record = Record(
        step=step, package="steps.sft", run=run, seed=3, inputs={"model": "models/a"},
        config={"learning_rate": 0.1, "max_tokens": 5, "hub": {"token": "hf_sesame", "api_key": "sesame"}},
        environment={"name": "cpu"}, source={"digest": "sha256:0"},
        outputs={"model": "runs/r/sft/model#sha256:1", "loss": 0.25, "updates": 3},
        timings={"started": 1000.0, "ended": 1010.0},
    )  # fmt: skip
    return context, record


def runs(workspace: Path, run: str) -> list:
    client = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("posttrain")
    return client.search_runs([experiment.experiment_id], f"tags.run = '{run}'")


def test_a_finished_step_is_a_run_with_its_scores_curves_and_small_files(workspace):
    context, record = finished(workspace, points=1200)
    track(context, record)
    (found,) = runs(workspace, "r")
    assert found.info.run_name == "r/sft" and found.info.status == "FINISHED"
    assert found.info.end_time - found.info.start_time == 10_000
    assert found.data.params["learning_rate"] == "0.1" and found.data.params["input.model"] == "models/a"
    assert found.data.metrics["output.loss"] == 0.25 and found.data.tags["request"] == record.request
    client = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")
    assert len(client.get_metric_history(found.info.run_id, "loss")) == 1200
    assert [a.path for a in client.list_artifacts(found.info.run_id)] == ["summary.json"]


def test_no_secret_reaches_the_store(workspace):
    context, record = finished(workspace, run="secretive")
    assert set(parameters(record)) == {"seed", "input.model", "learning_rate", "max_tokens"}
    track(context, record)
    kept = [p for p in workspace.rglob("*") if p.is_file() and p.name.startswith("mlflow.db")]
    assert kept and not any(b"sesame" in p.read_bytes() for p in kept)


def test_a_step_that_is_tracked_again_leaves_one_run(workspace):
    context, record = finished(workspace, run="twice")
    track(context, record)
    (first,) = runs(workspace, "twice")
    track(context, record)
    assert [r.info.run_id for r in runs(workspace, "twice")] == [first.info.run_id]
    client = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")
    client.update_run(first.info.run_id, status="RUNNING")
    track(context, record)
    (again,) = runs(workspace, "twice")
    assert again.info.status == "FINISHED" and again.info.run_id != first.info.run_id


def test_a_release_is_registered_by_reference_and_once(workspace):
    context, _ = finished(workspace)
    release = workspace / "releases/tiny/r"
    release.mkdir(parents=True)
    assert register(context, "tiny", release, {"digest": "sha256:1"}) == "tiny/1"
    assert register(context, "tiny", release, {"digest": "sha256:1"}) == "tiny/1"
    assert register(context, "tiny", release, {"digest": "sha256:2"}) == "tiny/2"
    version = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}").get_model_version("tiny", "2")
    assert version.source == release.as_uri() and version.tags == {"digest": "sha256:2"}


def test_steps_that_end_at_once_are_all_tracked_in_a_new_store(tmp_path):
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from tests.test_tracking import finished; from posttrain.tracking import track\n"
        "track(*finished(Path(sys.argv[2]), run='crowd', step=sys.argv[3]))\n"
    )
    crowd = [
        subprocess.Popen([sys.executable, "-c", program, str(ROOT), str(tmp_path), f"s{n}"], cwd=ROOT, env=os.environ)
        for n in range(3)
    ]
    assert [process.wait(600) for process in crowd] == [0, 0, 0]
    assert sorted(r.data.tags["step"] for r in runs(tmp_path, "crowd")) == ["s0", "s1", "s2"]


def test_a_server_that_is_not_there_is_a_warning_without_its_password(tmp_path, monkeypatch, caplog):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:sesame@127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    context, record = finished(tmp_path)
    track(context, record)
    assert "sft was not tracked" in caplog.text and "sesame" not in caplog.text
    assert register(context, "tiny", tmp_path, {}) == UNREGISTERED
    assert not (tmp_path / "mlflow.db").exists()


def test_a_damaged_store_is_a_warning(tmp_path, caplog):
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    track(*finished(tmp_path))
    assert "sft was not tracked" in caplog.text


def test_a_store_that_another_step_holds_too_long_is_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tracking, "LOCK_SECONDS", 0.2)
    with tracking._alone(tmp_path / ".mlflow.lock"):
        track(*finished(tmp_path))
    assert "was held by another step" in caplog.text


def test_it_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv(tracking.SWITCH, "off")
    context, _ = finished(tmp_path)
    assert not tracking.enabled() and register(context, "tiny", tmp_path, {}) == UNREGISTERED
    assert not (tmp_path / "mlflow.db").exists()
