"""The engine's loop with pods that are decided rather than run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.engine import Engine, load
from posttrain.engine import engine as engine_module
from posttrain.engine.podspec import PodSpec, PodStatus
from posttrain.engine.run import machine

Outcome = Callable[[PodSpec], PodStatus]


class DecidedPods:
    """In place of a PodRunner: a pod ends as `outcome` says, in an order that `dice` throws."""

    def __init__(self, outcome: Outcome, dice: random.Random):
        self.outcome, self.dice = outcome, dice
        self.open: dict[str, PodSpec] = {}
        self.started: list[str] = []
        self.stopped: set[str] = set()
        self.statuses: dict[str, PodStatus] = {}

    def start(self, spec: PodSpec) -> None:
        self.started.append(spec.id)
        self.open[spec.id] = spec
        self.statuses[spec.directory] = PodStatus()

    def status(self, directory: str) -> PodStatus:
        return self.statuses[directory]

    def stop(self, directory: str, grace: float) -> None:
        for id, spec in list(self.open.items()):
            if spec.directory == directory:
                self.open.pop(id)
                self.statuses[directory] = PodStatus("Failed", "stopped", finished=time.time())
                self.stopped.add(id)

    def wait(self, timeout: float) -> set[str]:
        if self.stopped:
            stopped, self.stopped = self.stopped, set()
            return stopped
        if not self.open:
            time.sleep(min(timeout, 0.02))
            return set()
        id = self.dice.choice(sorted(self.open))
        spec = self.open.pop(id)
        self.statuses[spec.directory] = self.outcome(spec)
        return {id}

    def alive(self, directory: str) -> bool:
        return False

    def close(self) -> None: ...


def run_decided(workspace: Path, manifest: dict, outcome: Outcome, seed: int = 0) -> tuple[dict, DecidedPods]:
    """Run a workflow to its end; gives its nodes by name (and the workflow's status as ""), and the pods."""
    pods = DecidedPods(outcome, random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        for place in (machine, engine_module):
            patch.setattr(place, "PodRunner", lambda *_: pods)
        engine = Engine(workspace)
        name = engine.submit(load(manifest))
        engine.run(name)
    status = engine.get(name)["status"]
    return {"": status} | {one["name"]: one for one in status["nodes"].values()}, pods


def workflow(*templates: dict, **spec) -> dict:
    """A Workflow named w that enters at main."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w"},
        "spec": {"entrypoint": "main", **spec, "templates": list(templates)},
    }


WORK = {"name": "work", "inputs": {"parameters": [{"name": "end", "default": "Succeeded"}]},
        "container": {"image": "i", "command": ["sh"], "args": ["{{inputs.parameters.end}}"]}}  # fmt: skip


def as_told(spec: PodSpec) -> PodStatus:
    """A pod of WORK ends as its argument says."""
    now = time.time()
    return PodStatus(spec.main["args"][0], started=now, finished=now, outputs={"result": "1", "exitCode": "0"})
