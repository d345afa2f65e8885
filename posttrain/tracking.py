"""Finished steps in MLflow: parameters, scores, curves, small files; releases in its model registry.

    POSTTRAIN_TRACKING=mlflow|off     mlflow is the default
    MLFLOW_TRACKING_URI               a server; without one mlflow.db and mlartifacts/ in the workspace are used
    MLFLOW_EXPERIMENT_NAME            posttrain by default

Invariants: a step is finished before it is tracked, and a failure to track is one warning in the step's log, never
the step's failure; a secret of the configuration and the password of a server's address are never written; steps
that end at the same moment wait for each other, since SQLite has one writer. A step that is tracked again (it was
found finished, or killed on the way) leaves one run.

Curves go there at the end of the step, in bulk: while it runs, `metrics.jsonl` beside its record is the place to look.
MLflow takes a second or two to load, which is paid by the steps that are tracked (`StepSpec.tracked`) and no other.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.contract.context import METRICS, StepContext
from posttrain.contract.locks import taken_within
from posttrain.contract.record import Record

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)

SWITCH = "POSTTRAIN_TRACKING"
UNREGISTERED = "unregistered"
LOCK_SECONDS = 120.0
LARGEST_FILE = 1 << 20  # bytes of a file worth a copy in the tracking store
BATCH = 1000  # metrics of one request, MLflow's own limit; it takes 100 parameters

_SECRET = re.compile(r"(^|[._-])(secret|password|passwd|credentials?|api_?key|access_?key|token)$", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/@\s]+@")


def enabled() -> bool:
    return os.environ.get(SWITCH, "mlflow") != "off"


def track(context: StepContext, record: Record) -> None:
    """Log the finished step as the MLflow run `RUN/STEP`. Never raises."""
    try:
        with _client(context.workspace) as client:
            _log_step(client, context, record)
    except Exception as problem:  # whatever a tracking server does, the step has done its work
        log.warning("%s was not tracked: %s", context.step, _without_password(problem))


def register(context: StepContext, name: str, release: Path, tags: Mapping[str, str]) -> str:
    """Enter `release` as the next version of the model `name` and return `NAME/VERSION`.

    The version refers to the directory; no weights are copied. One with the same tag `digest` is taken again.
    Never raises: where the registry cannot be reached or tracking is off the answer is `UNREGISTERED`.
    """
    if not enabled():
        return UNREGISTERED
    try:
        with _client(context.workspace) as client:
            return f"{name}/{_version(client, name, release, tags)}"
    except Exception as problem:  # as in `track`
        log.warning("%s was not registered: %s", name, _without_password(problem))
        return UNREGISTERED


def _version(client: MlflowClient, name: str, release: Path, tags: Mapping[str, str]) -> str:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as problem:
        if problem.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    for found in client.search_model_versions(f"name = '{name}'"):
        if found.tags.get("digest") == tags.get("digest") and found.source == release.as_uri():
            return str(found.version)
    return str(client.create_model_version(name, release.as_uri(), tags=dict(tags)).version)


def _log_step(client: MlflowClient, context: StepContext, record: Record) -> None:
    from mlflow.entities import Param, RunTag

    experiment = _experiment(client, context.workspace)
    tags = {"run": record.run, "step": record.step, "request": record.request, "package": record.package}
    asked = " and ".join(f"tags.{key} = '{tags[key]}'" for key in ("run", "step", "request"))
    for found in client.search_runs([experiment], asked):
        if found.info.status == "FINISHED":
            return
        client.delete_run(found.info.run_id)  # a start of this step that was killed while it was tracked
    started = int(1000 * record.timings.get("started", time.time()))
    run = client.create_run(experiment, start_time=started, tags=tags, run_name=f"{record.run}/{record.step}")
    run_id = run.info.run_id

    described = [Param(key, value) for key, value in parameters(record).items()]
    for part in _chunks(described, 100):
        client.log_batch(run_id, params=part)
    for part in _chunks(list(_metrics(context, record)), BATCH):
        client.log_batch(run_id, metrics=part)
    texts = {k: v for k, v in record.outputs.items() if isinstance(v, str)}
    client.log_batch(run_id, tags=[RunTag(f"output.{key}", value) for key, value in texts.items()])
    for file in sorted(context.directory.glob("*")):
        if file.suffix in (".json", ".md") and file.is_file() and file.stat().st_size <= LARGEST_FILE:
            client.log_artifact(run_id, str(file))
    client.set_terminated(run_id, end_time=int(1000 * record.timings.get("ended", time.time())))


def parameters(record: Record) -> dict[str, str]:
    """The step's seed, inputs and configuration by dotted names; strings under a secret's name are left out."""
    flat = {"seed": record.seed} | {f"input.{k}": v for k, v in record.inputs.items()} | dict(_flat(record.config, ""))
    return {key: str(value) for key, value in flat.items() if not (_SECRET.search(key) and isinstance(value, str))}


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for place, inner in enumerate(value):
            yield from _flat(inner, f"{prefix}.{place}")
    else:
        yield prefix, value


def _metrics(context: StepContext, record: Record) -> Iterator[Metric]:
    from mlflow.entities import Metric

    ended = int(1000 * record.timings.get("ended", time.time()))
    for key, value in record.outputs.items():
        if isinstance(value, int | float):
            yield Metric(f"output.{key}", float(value), ended, 0)
    curves = context.directory / METRICS
    for line in curves.read_text().splitlines() if curves.exists() else ():
        entry = json.loads(line)
        at, step = int(1000 * entry.pop("time")), entry.pop("step")
        for key, value in entry.items():
            yield Metric(key, float(value), at, step)


def _experiment(client: MlflowClient, workspace: Path) -> str:
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "posttrain")
    local = None if os.environ.get("MLFLOW_TRACKING_URI") else (workspace / "mlartifacts").as_uri()
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, artifact_location=local)
        except MlflowException as problem:
            if problem.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)  # another step has made it since
            assert found is not None
    return found.experiment_id


@contextmanager
def _client(workspace: Path) -> Iterator[MlflowClient]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    from mlflow.tracking import MlflowClient

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        yield MlflowClient(uri)
        return
    with _alone(workspace / ".mlflow.lock"):
        yield MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold `lock` inside. Raises TimeoutError where another process keeps it for longer than `LOCK_SECONDS`."""
    with open(lock, "w") as held:
        if not taken_within(held.fileno(), LOCK_SECONDS, every=0.05):
            raise TimeoutError(f"{lock} was held by another step for {LOCK_SECONDS:g} s")
        yield


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _without_password(problem: Exception) -> str:
    return _USERINFO.sub("//***@", (str(problem).strip() or type(problem).__name__).splitlines()[0])
