"""Running cases on the embedded engine, many at a time."""

from __future__ import annotations

import concurrent.futures
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.argo import Cluster
from posttrain.engine.conformance.cases import Case, Operation
from posttrain.engine.conformance.compare import describe
from posttrain.engine.conformance.scheduled import run_scheduled
from posttrain.engine.engine import Engine
from posttrain.engine.linting import lint
from posttrain.engine.manifest import load, parse
from posttrain.engine.nodes import FULFILLED
from posttrain.engine.settings import EngineSettings
from posttrain.errors import UserError

JSON = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `result` in the form of a recorded one; `refused` says why nothing was started."""

    case: Case
    result: JSON
    refused: str = ""
    seconds: float = 0.0


def run_all(
    cases: Iterable[Case],
    settings: EngineSettings,
    *,
    jobs: int = 12,
    limit: float = 100.0,
    scratch: Path | None = None,
) -> Iterator[Outcome]:
    """Run cases side by side; outcomes come as they are ready. A case that takes longer than `limit` is terminated."""
    with (
        tempfile.TemporaryDirectory(prefix="conformance-", dir=scratch) as directory,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):
        ordered = sorted(cases, key=lambda one: -_length(one))
        futures = [pool.submit(run_case, one, settings, Path(directory), limit) for one in ordered]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


class _Driver(threading.Thread):
    """An engine at work, and what went wrong with it."""

    def __init__(self, engine: Engine, name: str):
        super().__init__(daemon=True)
        self.engine, self.run_name, self.trouble = engine, name, ""
        self.start()

    def run(self) -> None:
        try:
            self.engine.run(self.run_name)
        except Exception:
            self.trouble = traceback.format_exc()


def _length(case: Case) -> float:
    """A guess at how long a case takes, so that the long ones begin first."""
    return (case.seconds or 0.0) + 10 * len(case.operations) + 5 * case.text.count("sleep") + case.text.count("backoff")


def run_case(case: Case, settings: EngineSettings, directory: Path, limit: float) -> Outcome:
    """One case, from lint to the end of its run."""
    began = time.monotonic()
    workspace = directory / case.name.replace("/", "-")
    try:
        result, refused = _run(case, settings, workspace, limit)
    except Exception:
        result, refused = {"broken": traceback.format_exc()}, ""
    shutil.rmtree(workspace, ignore_errors=True)
    return Outcome(case, result, refused, time.monotonic() - began)


def _run(case: Case, settings: EngineSettings, workspace: Path, limit: float) -> tuple[JSON, str]:
    try:
        findings = lint(parse(case.file))
        if findings:
            return {}, findings[0].message
        manifest = load(case.file)
        engine = Engine(workspace, settings=settings)
        if manifest.kind == "CronWorkflow":
            return run_scheduled(case, engine), ""
        name = engine.submit(manifest)
    except UserError as error:
        return {}, str(error)
    said: list[JSON] = []
    driver = _Driver(engine, name)
    until = time.monotonic() + (case.seconds or limit)
    for operation in case.operations:
        driver = _operate(engine, name, operation, driver, said, until)
    driver.join(max(until - time.monotonic(), 0.1))
    workflow = engine.get(name)
    if driver.trouble:
        return {"broken": driver.trouble}, ""
    result = describe(workflow)
    if said:
        result["operations"] = said
    if driver.is_alive():
        result["unfinished"] = True
        engine.terminate(name)
        driver.join(20)
    return result, ""


def _operate(
    engine: Engine, name: str, operation: Operation, driver: _Driver, said: list[JSON], until: float
) -> _Driver:
    if operation.after is not None:
        time.sleep(operation.after)
    while operation.when is not None and time.monotonic() < until:
        phase = engine.get(name)["status"].get("phase")
        if phase == operation.when and (phase not in FULFILLED or not driver.is_alive()):
            break
        time.sleep(0.1)
    entry: JSON = {"operation": operation.text, "ok": True}
    try:
        carry_out(engine, name, operation)
    except UserError as error:
        entry |= {"ok": False, "error": str(error)}
    said.append(entry)
    if operation.verb == "retry" and entry["ok"]:
        driver = _Driver(engine, name)
    return driver


def carry_out(engine: Engine | Cluster, name: str, operation: Operation) -> None:
    """An operation with `argo`'s words, on either engine."""
    flags = list(operation.flags)
    options: dict[str, Any] = {}
    pairs: dict[str, str] = {}
    while flags:
        flag = flags.pop(0)
        match flag:
            case "--node-field-selector":
                options["selector"] = flags.pop(0)
            case "--restart-successful":
                options["restart_successful"] = True
            case "--message":
                options["message"] = flags.pop(0)
            case "--phase":
                options["phase"] = flags.pop(0)
            case "-p" | "--parameter" | "--output-parameter":
                key, _, value = flags.pop(0).partition("=")
                pairs[key] = value
            case _:
                raise UserError("is no flag of this operation", field=operation.verb, value=flag)
    verbs: dict[str, Callable[[], Any]] = {
        "stop": lambda: engine.stop(name, **options),
        "terminate": lambda: engine.terminate(name),
        "suspend": lambda: engine.suspend(name),
        "resume": lambda: engine.resume(name, **options),
        "retry": lambda: engine.retry(name, pairs, **options),
        "node set": lambda: engine.set_outputs(name, options.pop("selector", ""), pairs, **options),
    }
    if operation.verb not in verbs:
        raise UserError("is no operation", value=operation.verb)
    verbs[operation.verb]()
