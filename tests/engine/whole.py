"""A manifest of any shape, from its text to the end of its run, with pods that are decided rather than run."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain.engine import Engine, lint
from posttrain.engine import engine as engine_module
from posttrain.engine.manifest import parse
from posttrain.engine.manifest.yaml import write_documents
from posttrain.engine.podspec import PodSpec, PodStatus
from posttrain.engine.run import machine
from posttrain.errors import UserError
from tests.engine.laws.support import DecidedPods

PASSES = 3  # so often the engine may find nothing to do before the run counts as waiting for somebody


class Waits(Exception):
    """The run waits for an operator, the clock or an output that nothing gives."""


class Pods(DecidedPods):
    def __init__(self) -> None:
        super().__init__(_done, random.Random(0))
        self.idle = 0

    def wait(self, timeout: float) -> set[str]:
        if self.open or self.stopped:
            return super().wait(timeout)
        self.idle += 1
        if self.idle > PASSES:
            raise Waits
        return set()


def _done(spec: PodSpec) -> PodStatus:
    now = time.time()
    parameters = [{"name": one["name"], "value": "1"} for one in spec.outputs.get("parameters") or []]
    outputs = {"result": "1", "exitCode": "0", **({"parameters": parameters} if parameters else {})}
    return PodStatus("Succeeded", started=now, finished=now, outputs=outputs)


def run_whole(workspace: Path, source: str | list[Any]) -> tuple[str, str]:
    """(what became of it, the line that says so): refused, waits, or the phase of the run.

    Anything but a UserError of one line, or findings of one line each, is left to fail the test.
    """
    try:
        text = source if isinstance(source, str) else write_documents(source)
        manifest = parse(text + "\n")
        findings = lint(manifest, parameters={})
        for one in findings:
            assert one.line >= 1
            _is_one_line(str(one))
        if findings:
            return "refused", str(findings[0])
        engine = Engine(workspace)
        name = engine.submit(manifest)
    except UserError as error:
        _is_one_line(str(error))
        return "refused", str(error)
    with pytest.MonkeyPatch.context() as patch:
        pods = Pods()
        for place in (machine, engine_module):
            patch.setattr(place, "PodRunner", lambda *_: pods)
        try:
            phase = engine.run(name)
        except Waits:
            phase = "waits"
        except UserError as error:
            _is_one_line(str(error))
            return "refused", str(error)
    return phase, engine.get(name)["status"].get("message", "")


def _is_one_line(text: str) -> None:
    assert text.strip() and "\n" not in text and "Traceback" not in text, repr(text)
