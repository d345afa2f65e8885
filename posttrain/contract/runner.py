"""Runs one step as one process: `python -m steps.NAME`.

    python -m steps.sft --workspace DIR --run RUN --step sft --seed 0 \\
        --config '{"learning_rate": 1e-4}' --input train=lake/a.lance@1#sha256:… --outputs /tmp/outputs

Invariants: configuration and inputs are checked before the heavy half is imported; a step whose
record answers the same request does not run again; outputs and the record come last; a mistake of
the user's is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import re
import signal
import sys
import time
from dataclasses import MISSING, asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from posttrain.contract import record as records
from posttrain.contract.config import json_object, resolve, to_plain
from posttrain.contract.context import METRICS, StepContext
from posttrain.contract.files import write_atomic
from posttrain.contract.progress import FILE as PROGRESS
from posttrain.contract.ref import Ref
from posttrain.contract.spec import StepSpec
from posttrain.errors import UserError

log = logging.getLogger("posttrain")


def main(spec: StepSpec, argv: list[str] | None = None) -> NoReturn:
    """Run the step and leave the process with its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _parser(spec).parse_args(argv)
    try:
        _run(spec, arguments)
    except UserError as problem:
        print(f"error: {spec.name}: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        where, what = problem.filename or arguments.workspace, str(problem.strerror).lower()
        print(
            f"error: {spec.name}: {where}: the disk is full ({what}); free some space and run the step again",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(0)


def _parser(spec: StepSpec) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {spec.package}", description=spec.summary)
    parser.add_argument("--workspace", type=Path, required=True, help="the shared workspace directory")
    parser.add_argument("--run", required=True, help="name of the run (the workflow's name)")
    parser.add_argument("--step", default=spec.name, help="name of this step in the run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", default="{}", help="JSON object laid over the step's defaults")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="one of the step's inputs")
    parser.add_argument("--outputs", type=Path, help="directory that takes one file for each output")
    return parser


def _run(spec: StepSpec, arguments: argparse.Namespace) -> None:
    for flag, name in (("--run", arguments.run), ("--step", arguments.step)):
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
            raise UserError("is no name", field=flag, value=name, remedy="use letters, digits, '.', '_' and '-'")
    config: Any = resolve(spec.Config, json_object(arguments.config, field="--config"), where=spec.name)
    inputs = parse_inputs(spec, arguments.input)
    context = StepContext(arguments.workspace.absolute(), arguments.run, arguments.step, arguments.seed)
    if not context.workspace.is_dir():
        raise UserError("no such directory", field="--workspace", value=str(context.workspace))
    wanted = records.Record(
        step=context.step, package=spec.package, run=context.run, seed=context.seed,
        inputs=asdict(inputs), config=to_plain(config), environment=records.environment(), source=records.source(),
    )  # fmt: skip
    context.directory.mkdir(parents=True, exist_ok=True)
    _start_logging(context.directory)

    found = records.read(context.directory)
    if spec.kind == "phase" and found and found.request == wanted.request and _still_there(context, found.outputs):
        log.info("%s already ended with this request: its outputs are taken as they are", context.step)
        _write_outputs(arguments.outputs or context.directory / "outputs", found.outputs)
        return

    _forget_what_was_asked_otherwise(context.directory, wanted.asked)
    started = time.time()
    outputs = asdict(import_module(f"{spec.package}.run").run(context, inputs, config))
    ended = time.time()
    _write_outputs(arguments.outputs or context.directory / "outputs", outputs)
    finished = asdict(wanted) | {
        "outputs": outputs,
        "measured": sorted(spec.measured_outputs()),
        "timings": {"started": started, "ended": ended, "seconds": round(ended - started, 3)},
        "host": records.host(),
    }
    record = records.Record(**finished)
    record.write(context.directory)
    if spec.tracked and os.environ.get("POSTTRAIN_TRACKING") != "off":
        import_module("posttrain.tracking").track(context, record)


def _forget_what_was_asked_otherwise(directory: Path, asked: str) -> None:
    """Remove what an earlier start left. One that was asked the same, by other code even, goes on with its curves."""
    marker = directory / "asked"
    for stale in (records.FILE, PROGRESS):
        (directory / stale).unlink(missing_ok=True)
    if not marker.exists() or marker.read_text() != asked:
        (directory / METRICS).unlink(missing_ok=True)
        write_atomic(marker, asked)


def parse_inputs(spec: StepSpec, given: list[str]) -> Any:
    """`NAME=VALUE` items as the step's `Inputs`; UserError for an unknown, missing or ill-typed one."""
    known = {f.name: f for f in fields(spec.Inputs)}
    values: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or name not in known:
            raise UserError(
                f"{spec.name} has no such input",
                field="--input",
                value=item,
                remedy=f"known: {', '.join(known) or 'none'}",
            )
        values[name] = _convert(text, known[name].type, f"{spec.name}.{name}")
    lacking = [n for n, f in known.items() if n not in values and f.default is MISSING and f.default_factory is MISSING]
    if lacking:
        raise UserError("is missing", field=f"{spec.name}.{lacking[0]}", remedy=f"give --input {lacking[0]}=…")
    return spec.Inputs(**values)


def _convert(text: str, kind: Any, field: str) -> Any:
    name = kind if isinstance(kind, str) else kind.__name__
    try:
        if name == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"str": str, "int": int, "float": float}[name](text)
    except (ValueError, KeyError):
        raise UserError(f"is no {name}", field=field, value=text) from None


def _still_there(context: StepContext, outputs: dict[str, Any]) -> bool:
    """Whether every output that refers to something in the workspace by digest still finds it."""
    for value in outputs.values():
        if isinstance(value, str) and "#sha256:" in value:
            where = Ref.parse(value).locate(context.workspace)
            if "://" not in where and not Path(where).exists():
                return False
    return True


def _write_outputs(directory: Path, outputs: dict[str, Any]) -> None:
    """One file per output, as a pod's output parameters are read: text as it is, the rest as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in outputs.items():
        write_atomic(directory / name, value if isinstance(value, str) else json.dumps(value))


def _start_logging(directory: Path) -> None:
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(sys.stderr), logging.FileHandler(directory / "log")):
        handler.setFormatter(form)
        root.addHandler(handler)
