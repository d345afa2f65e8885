"""Runs the sandbox tasks of a TaskServer until it is told to stop: each in a sandbox of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from posttrain.contract import Nothing, Resources, StepSpec
from posttrain.errors import UserError
from posttrain.sandbox.drivers import DriverSettings
from posttrain.sandbox.spec import SandboxSpec
from posttrain.units import is_port

PORT = 8500
KIND = "sandbox"


@dataclass(frozen=True)
class Inputs:
    tasks: str  # the TaskServer's URL


@dataclass
class Config:
    """`specs` are the kinds of sandbox that a task may ask for, by name; what a task may not choose stands here.

    `warm` sandboxes of a spec wait for the next task, `warm_total` of all. `result_bytes` is what a task's files may
    come to in its result.
    """

    port: int = PORT
    host: str = ""  # address to listen on; empty: the pod's own (POD_IP), else every one
    concurrency: int = 8
    driver: DriverSettings = field(default_factory=DriverSettings)
    specs: dict[str, SandboxSpec] = field(default_factory=lambda: {"default": SandboxSpec()})
    warm: int = 2
    warm_total: int = 8
    result_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        is_port("port", self.port)
        for name, least in (("concurrency", 1), ("warm", 0), ("warm_total", 0), ("result_bytes", 1)):
            if getattr(self, name) < least:
                raise UserError(f"must be at least {least}", field=name, value=getattr(self, name))
        if not self.specs:
            raise UserError("names no kind of sandbox", field="specs", remedy="give at least specs.default")


SPEC = StepSpec(
    name="sandbox",
    package="steps.sandbox",
    summary="Run code that nobody has read, each task in a sandbox of its own",
    environment="cpu",
    Inputs=Inputs,
    Outputs=Nothing,
    Config=Config,
    kind="service",
    resources=Resources(cpu="4", memory="8Gi"),
    deadline_seconds=7 * 24 * 3600,
    port=PORT,
    ready="/ready",
)
