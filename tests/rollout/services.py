"""Services as processes of the tests, and workers that do as the payload says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from posttrain.rollout.tasks.client import TaskClient
from posttrain.rollout.tasks.model import Outcome
from posttrain.rollout.tasks.settings import DATABASE_VARIABLE
from posttrain.rollout.tasks.worker import Ended, Job, Worker

ROOT = Path(__file__).parents[2]
KINDS = ("odd", "even")


def start_server(database: str, port: int, *settings: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "posttrain.cli", "tasks", "serve", "--port", str(port), *settings]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {DATABASE_VARIABLE: database})


def start_worker(url: str, concurrency: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.rollout.services", url, str(concurrency)]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)


def handle(job: Job) -> Any:
    """Ends as the payload's `outcome`, after `seconds`; breaks now and then, as the infrastructure does."""
    payload = job.lease.payload
    if job.over.wait(payload["seconds"] * random.random() * 2):
        return None
    if random.random() < 0.05:
        raise Ended(Outcome.infrastructure_error, "no sandbox could be had")
    if payload["outcome"] != Outcome.succeeded:
        raise Ended(Outcome(payload["outcome"]), "as asked", {"n": payload["n"]})
    return {"n": payload["n"]}


def main(url: str, concurrency: int) -> None:
    worker = Worker(TaskClient(url, patience=120), KINDS, handle, concurrency=concurrency, lease_wait=5)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    worker.run()


def _end_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
