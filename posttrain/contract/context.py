"""What a running step is given: where it stands, and how it reports.

The workspace (one directory, JuiceFS in a cluster):

    models/NAME/                 base models, Hugging Face layout
    lake/NAME.lance              data sets and streams
    runs/RUN/STEP/               outputs, record.json, log, metrics.jsonl, progress.jsonl
    checkpoints/RUN/STEP/        step-000120/ with manifest.json written last
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.contract.progress import Progress
from posttrain.contract.ref import Ref
from posttrain.errors import UserError

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class StepContext:
    workspace: Path
    run: str
    step: str
    seed: int

    @property
    def directory(self) -> Path:
        """`runs/RUN/STEP/`; exists while the step runs."""
        return self.workspace / "runs" / self.run / self.step

    @property
    def checkpoints(self) -> Path:
        return self.workspace / "checkpoints" / self.run / self.step

    @property
    def progress(self) -> Progress:
        return Progress(self.directory)

    def locate(self, ref: str | Ref, *, field: str) -> Path:
        """The local path that `ref` names. Raises UserError naming `field` where nothing is there."""
        parsed = Ref.parse(ref, field=field) if isinstance(ref, str) else ref
        path = Path(parsed.locate(self.workspace))
        if not path.exists():
            raise UserError(
                "does not exist in the workspace", field=field, value=str(parsed), remedy=f"looked at {path}"
            )
        return path

    def relative(self, path: Path) -> str:
        """`path` as a ref's URI: relative to the workspace."""
        return path.relative_to(self.workspace).as_posix()

    def log(self, step: int, **metrics: float) -> None:
        """Append one point of each metric (a loss curve, say) to `metrics.jsonl`.

        What an earlier start that was asked the same drew is still there: only the step knows how much of it holds.
        """
        entry: dict[str, Any] = {"time": round(time.time(), 3), "step": step} | metrics
        with open(self.directory / METRICS, "a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")
