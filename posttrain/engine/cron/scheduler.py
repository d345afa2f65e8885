"""Cron workflows of a workspace, kept on disk and carried out: the right run at the right time.

    <workspace>/cron/NAME.json   the CronWorkflow object with its status, replaced atomically
    <workspace>/cron/NAME.yaml   the manifest as it was given, with the objects it brought
    <workspace>/cron/lock        held by the scheduler at work

A scheduler that was killed goes on from there: runs that it had started are driven on, a start that
it missed is made up for within `startingDeadlineSeconds`, and a due time never starts two runs
(a run's name is made of it).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from posttrain.contract import locks
from posttrain.contract.files import write_atomic
from posttrain.engine.cron import rules
from posttrain.engine.engine import Engine
from posttrain.engine.linting import lint
from posttrain.engine.manifest import Manifest, Objects
from posttrain.engine.manifest.yaml import read_documents, write_documents
from posttrain.engine.nodes import FULFILLED
from posttrain.errors import UserError

JSON = dict[str, Any]
OnEvent = Callable[[JSON], None]


class Scheduler:
    """The cron workflows of an engine's workspace. `clock` is the time that schedules go by."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time):
        self.engine, self.clock = engine, clock
        self.directory = engine.workspace / "cron"
        self._drivers: dict[str, threading.Thread] = {}
        self._stop = threading.Event()

    # -- what is scheduled

    def add(self, manifest: Manifest) -> str:
        """Schedule a CronWorkflow, or replace the one of its name (its counts stay). Raises UserError."""
        if manifest.kind != "CronWorkflow":
            raise UserError("is no CronWorkflow", field=manifest.file, value=manifest.kind)
        findings = lint(manifest)
        if findings:
            first = findings[0]
            raise UserError(first.message, field=f"{first.file}:{first.line}: {first.path}")
        name = manifest.name
        metadata = {"namespace": self.engine.settings.namespace, **manifest.metadata, "name": name}
        before = self._read(name) if self._file(name).exists() else {}
        status = before.get("status") or manifest.document.get("status") or {}
        cron = {**manifest.document, "metadata": metadata, "status": status}
        self.directory.mkdir(parents=True, exist_ok=True)
        objects = write_documents(manifest.objects.documents())
        write_atomic(self.directory / f"{name}.yaml", objects)
        self._write(cron)
        return name

    def remove(self, name: str) -> None:
        """Forget a cron workflow; its runs stay."""
        self._read(name)
        for ending in ("json", "yaml"):
            self._file(name, ending).unlink(missing_ok=True)

    def suspend(self, name: str, suspended: bool = True) -> None:
        """Start no more runs, or start them again."""
        cron = self._read(name)
        cron["spec"]["suspend"] = suspended
        self._write(cron)

    def get(self, name: str) -> JSON:
        """The CronWorkflow object with its status."""
        return self._read(name)

    def list(self) -> Sequence[JSON]:
        """Every cron workflow: {name, schedules, timezone, suspended, phase, active, last, next}."""
        found = []
        for file in sorted(self.directory.glob("*.json")):
            cron = self._read(file.stem)
            due = rules.next_due(cron, self.clock())
            found.append(
                {
                    "name": file.stem, "schedules": [one.text for one in rules.schedules_of(cron["spec"])],
                    "timezone": cron["spec"].get("timezone"), "suspended": bool(cron["spec"].get("suspend")),
                    "phase": cron["status"].get("phase", ""),
                    "active": [one["name"] for one in cron["status"].get("active") or []],
                    "last": cron["status"].get("lastScheduledTime"), "next": due,
                }
            )  # fmt: skip
        return found

    # -- the work

    def run(self, on_event: OnEvent | None = None, until: float | None = None) -> None:
        """Start runs as they are due, until `stop` or the time `until`. Raises UserError where another does it."""
        tell = on_event or (lambda _: None)
        with self._locked():
            last = {name: self._begin(name, tell) for name in self._names()}
            while not self._stop.is_set() and (until is None or self.clock() < until):
                now = self.clock()
                for name in self._names():
                    with contextlib.suppress(FileNotFoundError):
                        self._reconcile(name)
                        last[name] = self._start_due(name, last.get(name, now), now, tell)
                self._stop.wait(0.2)

    def stop(self) -> None:
        """Make `run` return; the runs that it drives are driven on by threads until they have ended."""
        self._stop.set()

    def _begin(self, name: str, tell: OnEvent) -> float:
        """Take up what a scheduler before this one left: its runs, and a start that was missed."""
        self._reconcile(name)
        cron, now = self._read(name), self.clock()
        for run in cron["status"].get("active") or []:
            self._drive(run["name"])
        late = rules.missed(cron, now)
        if late is not None:
            self._start(name, late, tell)
        return now

    def _start_due(self, name: str, last: float, now: float, tell: OnEvent) -> float:
        for due in rules.due_between(self._read(name), last, now):
            self._start(name, due, tell)
        return now

    def _start(self, name: str, due: float, tell: OnEvent) -> None:
        cron = self._read(name)
        cron["metadata"].setdefault("annotations", {})[rules.USED] = rules.text_of(cron["spec"])
        decision = rules.decide_start(cron)
        told = {"time": due, "type": "cron", "node": name, "phase": "", "message": decision.why or decision.problem}
        if decision.problem:
            kind, _, message = decision.problem.partition(": ")
            rules.condition(cron, kind, message)
        for run in decision.replaces:
            with contextlib.suppress(UserError):
                self.engine.terminate(run)
        if decision.start:
            document = rules.workflow_for(cron, due)
            told |= {"phase": "Started", "message": document["metadata"]["name"]}
            try:
                self.engine.submit(Manifest(document, self._objects(name), file=f"cron workflow {name}"))
            except UserError as error:
                if self.engine.exists(document["metadata"]["name"]):
                    return  # this due time has its run already
                rules.condition(cron, "SubmissionError", f"Failed to submit Workflow: {error}")
                told |= {"phase": "Error", "message": str(error)}
            else:
                rules.started(cron, self.engine.get(document["metadata"]["name"]), due)
                self._drive(document["metadata"]["name"])
        self._write(cron)
        tell(told)

    def _drive(self, run: str) -> None:
        def work() -> None:
            with contextlib.suppress(UserError):  # another engine drives it, or it is gone
                self.engine.run(run)

        thread = threading.Thread(target=work, name=run, daemon=True)
        self._drivers[run] = thread
        thread.start()

    def _reconcile(self, name: str) -> None:
        """Count the runs that have ended since, and keep to the limits of the history."""
        cron, changed = self._read(name), False
        for reference in [*(cron["status"].get("active") or [])]:
            run = reference["name"]
            phase = self.engine.phase(run)
            driver = self._drivers.get(run)
            if phase is None or (phase in FULFILLED and not (driver and driver.is_alive())):
                self._drivers.pop(run, None)
                rules.ended(cron, run, phase)
                changed = True
        if changed:
            self._write(cron)
            for run in rules.too_old(cron, self._runs(name)):
                with contextlib.suppress(UserError):
                    self.engine.delete(run)

    def _runs(self, name: str) -> Sequence[JSON]:
        """The runs that a cron workflow made."""
        label = {rules.OF_CRON: name}
        return [one for one in self.engine.list() if label.items() <= (one.get("labels") or {}).items()]

    # -- files

    def _file(self, name: str, ending: str = "json") -> Path:
        return self.directory / f"{name}.{ending}"

    def _names(self) -> Sequence[str]:
        return sorted(file.stem for file in self.directory.glob("*.json"))

    def _read(self, name: str) -> JSON:
        try:
            cron = json.loads(self._file(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError("there is no such cron workflow", field="cron workflow", value=name) from None
        except (OSError, ValueError) as error:
            raise UserError(f"cannot be read: {error}", field=str(self._file(name))) from None
        cron.setdefault("status", {})
        return cron

    def _write(self, cron: JSON) -> None:
        write_atomic(self._file(cron["metadata"]["name"]), json.dumps(cron, ensure_ascii=False, indent=1))

    def _objects(self, name: str) -> Objects:
        return Objects.of(read_documents(self._file(name, "yaml").read_text(encoding="utf-8")))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "lock"
        handle = locks.take(path)
        if handle is None:
            raise UserError(f"another scheduler is at work, process {locks.signed(path)}", field=str(self.directory))
        locks.sign(handle)
        try:
            yield
        finally:
            os.close(handle)
