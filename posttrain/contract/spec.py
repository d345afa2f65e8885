"""The light half of a step: what it is called, what goes in and out, what it needs to run.

Invariant: importing a spec imports nothing heavy (no torch, vLLM, Lance, Transformers), so
that a workflow is rendered and validated in well under a second.

Conventions for the three dataclasses of a spec:

- `Inputs` and `Outputs` hold strings, numbers and booleans only. A field that names data, a
  model or a checkpoint holds a `Ref` in its string form.
- an output that is measured rather than computed (seconds, tokens per second) is declared with
  `measured()`, and `posttrain rerun --check` reports it without comparing it.
- an input that names something alive (a service's address) and that the result does not depend on is declared with
  `live()`, and is empty when the step is run again.
- `Config` gives every key a default or `MISSING`; its `__post_init__` raises UserError for
  values that make no sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal


def measured(default: Any) -> Any:
    """An output field whose value is a measurement, so that two runs may differ in it."""
    return field(default=default, metadata={"measured": True})


def live() -> Any:
    """An input field that names something which is there while its own run goes on (an address): empty in a rerun."""
    return field(default="", metadata={"live": True})


@dataclass(frozen=True)
class Resources:
    """What one pod of a step asks for; a profile may raise or lower it. Kubernetes quantities."""

    cpu: str = "1"
    memory: str = "2Gi"
    gpu: int = 0


@dataclass(frozen=True)
class StepSpec:
    """`environment` names the one of a GPU cluster; a profile may map it (laptop: train -> cpu).

    `check` looks at the configuration beside the workspace before anything runs (paths that exist, a port
    that is free); it is light too. `port` is the one a service listens on; `ready` the HTTP path that answers
    200 once it serves. `tracked` steps are logged to MLflow when they end.
    """

    name: str
    package: str
    summary: str
    environment: Literal["control", "cpu", "train", "rollout"]
    Inputs: type
    Outputs: type
    Config: type
    kind: Literal["phase", "service"] = "phase"
    resources: Resources = Resources()
    deadline_seconds: int = 4 * 3600
    retries: int = 1
    port: int | None = None
    ready: str = "/health"
    tracked: bool = False
    check: Callable[[Any, Path], None] | None = None  # (config, workspace): UserError if the world does not fit
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables of the process

    def measured_outputs(self) -> set[str]:
        return {f.name for f in fields(self.Outputs) if f.metadata.get("measured")}

    def live_inputs(self) -> set[str]:
        return {f.name for f in fields(self.Inputs) if f.metadata.get("live")}


@dataclass(frozen=True)
class Nothing:
    """Inputs or Outputs of a step that has none."""
