"""Pods on this machine: who may start, who runs, who is being ended."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.engine import isolation
from posttrain.engine.admission import Amount, admit, impossible, request_of, this_machine, visible_devices
from posttrain.engine.pods import LOST, PodRunner
from posttrain.engine.podspec import PodSpec
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.run.launch import clear
from posttrain.engine.run.pods import PodBody
from posttrain.engine.settings import EngineSettings
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.engine.run.controller import Controller

_WINDOW = 128  # how many waiting pods are looked at together


class Machine:
    """Starts and follows the pods of one run. What is asked of it is done by `carry_out`, after the journal."""

    def __init__(self, run: Controller, pods: Path, settings: EngineSettings):
        self.run, self.settings, self._directory = run, settings, pods
        machine = this_machine()
        self.capacity = Amount(
            machine.cpu if settings.cpu is None else Decimal(str(settings.cpu)),
            machine.memory if settings.memory is None else Decimal(settings.memory),
            machine.gpu if settings.gpus is None else settings.gpus,
        )
        self.waiting: dict[str, tuple[PodBody, Amount]] = {}
        self.running: dict[str, tuple[PodBody, Amount, tuple[int, ...]]] = {}
        self._to_stop: dict[str, PodBody] = {}
        self._fresh = True
        self.runner: PodRunner

    def __enter__(self) -> Machine:
        driver = None if self.settings.isolation == "auto" else self.settings.isolation
        if driver == "bubblewrap" and isolation.choose().driver != "bubblewrap":
            raise UserError(
                f"is not to be had here: {isolation.choose().reason}", field="isolation", value="bubblewrap"
            )
        self.runner = PodRunner(self._directory, driver)
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def bodies(self) -> Iterator[PodBody]:
        """Every pod that waits or runs."""
        yield from [body for body, _ in self.waiting.values()]
        yield from [body for body, _, _ in self.running.values()]

    def idle(self) -> bool:
        return not self.running and not self.waiting

    def launch(self, body: PodBody) -> None:
        """Put a pod in line; one that an engine before this one started is taken up."""
        spec = body.spec
        try:
            amount = request_of(spec.main, spec.init, spec.sidecars)
        except UserError as error:
            raise TemplateError(str(error)) from None
        directory = Path(spec.directory)
        if (directory / "pod.json").exists():
            status = self.runner.status(spec.directory)
            if not (status.ended and status.message == LOST):
                gpus = _devices(directory) if amount.gpu else ()
                body.launched = True
                self.running[spec.id] = (body, amount, gpus)
                self.runner.start(self._seeing(spec, amount, gpus))
                self.run.agenda.soon(lambda: self._look(spec.id))
                return
            clear(directory)
        never = impossible(amount, self.capacity)
        if never:
            raise TemplateError(f"the pod can never be placed: {never}")
        self.waiting[spec.id] = (body, amount)
        self._fresh = True

    def withdraw(self, body: PodBody) -> None:
        """Take a pod out of the line again."""
        self.waiting.pop(body.spec.id, None)

    def stop(self, body: PodBody) -> None:
        if body.launched:
            self._to_stop[body.spec.id] = body
        else:
            self.withdraw(body)

    def carry_out(self) -> None:
        """End and start the pods that were asked for."""
        for body in self._to_stop.values():
            self.runner.stop(body.spec.directory, body.spec.grace_seconds)
        self._to_stop.clear()
        if self._fresh and self.waiting:
            self._admit()

    def _admit(self) -> None:
        room = self.settings.max_pods - len(self.running)
        while room > 0 and self.waiting:
            window = list(itertools.islice(self.waiting.items(), min(_WINDOW, room)))
            decision = admit(
                [(id, amount) for id, (_, amount) in window],
                [(amount, gpus) for _, amount, gpus in self.running.values()], self.capacity,
            )  # fmt: skip
            for id, gpus in decision.start.items():
                body, amount = self.waiting.pop(id)
                self._start(body, amount, gpus)
            room = self.settings.max_pods - len(self.running)
            if not decision.start or decision.wait:
                break
        self._fresh = False

    def _start(self, body: PodBody, amount: Amount, gpus: tuple[int, ...]) -> None:
        body.launched = True
        self.running[body.spec.id] = (body, amount, gpus)
        self.runner.start(self._seeing(body.spec, amount, gpus))

    def _seeing(self, spec: PodSpec, amount: Amount, gpus: tuple[int, ...]) -> PodSpec:
        """The spec of a pod that sees these GPUs and no others."""
        if not (self.capacity.gpu or amount.gpu):
            return spec
        return replace(spec, environment={**spec.environment, **visible_devices(gpus)})

    def wait(self, timeout: float) -> None:
        """Sleep until a pod changes or somebody calls, and tell the bodies what is new."""
        for id in self.runner.wait(timeout):
            self._look(id)

    def _look(self, id: str) -> None:
        if id not in self.running:
            return
        body = self.running[id][0]
        status = self.runner.status(body.spec.directory)
        if status.ended:
            self.running.pop(id)
            self._fresh = True
        body.status_changed(status)


def _devices(directory: Path) -> tuple[int, ...]:
    """The GPUs that a pod was started with."""
    try:
        spec = json.loads((directory / "pod.json").read_text(encoding="utf-8"))
        shown = spec["environment"].get("CUDA_VISIBLE_DEVICES", "")
        return tuple(int(one) for one in shown.split(",") if one)
    except (OSError, ValueError, KeyError):
        return ()  # it was never written whole: the pod has not come to be
