"""A storm: four producers, four consumers and two maintainers, killed, stopped and replaced by a schedule.

    python -m tests.lakestream.storm --seconds 60 --seed 7 --store s3

A seed gives the schedule: what happens to whom, and when. At the end the barrier is committed, the consumers
run to their end, and everything is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from posttrain.lakestream import Stream, StreamClosed
from tests.lakestream.stores import Store, seaweed
from tests.lakestream.worker import FENCED, SCHEMA, lines, processes, work

PRODUCERS = [f"p{i}" for i in range(4)]
CONSUMERS = [("train", 0, 3), ("train", 1, 3), ("train", 2, 3), ("audit", 0, 1)]
MAINTAINERS = 2


@dataclass(frozen=True)
class Step:
    """At `at` seconds: kill `target`, or stop it for `pause` seconds (a producer is replaced meanwhile)."""

    at: float
    action: str
    target: str
    pause: float


def schedule(seed: int, seconds: float) -> list[Step]:
    choose, at, steps = random.Random(seed), 1.0, []
    targets = PRODUCERS * 3 + [f"c{i}" for i in range(len(CONSUMERS))] + [f"m{i}" for i in range(MAINTAINERS)]
    while at < seconds:
        target = choose.choice(targets)
        action = choose.choice(["kill", "stop"])
        steps.append(Step(round(at, 2), action, target, round(choose.uniform(0.2, 4.0), 2)))
        at += choose.uniform(0.3, 1.2)
    return steps


@dataclass
class Report:
    """What a storm did and what is wrong; nothing may be wrong."""

    seed: int
    commits: int = 0
    rows: int = 0
    archived: int = 0
    kills: int = 0
    zombies: int = 0
    fenced: int = 0
    versions: int = 0
    wrong: list[str] = field(default_factory=list)


class Storm:
    def __init__(self, store: Store, directory: Path, seed: int, seconds: float):
        self.store, self.directory, self.seed, self.seconds = store, directory, seed, seconds
        self.uri, self.archive_uri = store.uri(f"storm-{seed}"), store.uri(f"archive-{seed}")
        self.policy = {"every_commits": 10, "keep_versions": 0.3, "small_rows": 2000}
        if seed % 2:
            self.policy |= {"retain": 1.0, "archive": self.archive_uri}
        self.stream = Stream.create(self.uri, SCHEMA, storage_options=store.options)
        self.running: dict[str, BaseProcess] = {}
        self.stopped: list[tuple[float, BaseProcess]] = []
        self.everyone: list[tuple[str, BaseProcess, Path]] = []  # name, process, what it printed
        self.killed: set[BaseProcess] = set()
        self.report = Report(seed)

    def start(self, target: str) -> None:
        number = int(target[1:])
        if target[0] == "p":
            arguments = [
                "producer",
                self.uri,
                target,
                str(self.seed),
                str(self.directory / f"{target}.{time.time_ns()}.log"),
            ]
        elif target[0] == "c":
            group, index, count = CONSUMERS[number]
            arguments = ["consumer", self.uri, group, str(index), str(count), str(self.log_of(number))]
        else:
            arguments = ["maintainer", self.uri, json.dumps(self.policy)]
        output = self.directory / f"{target}.{time.time_ns()}.out"
        process = processes().Process(target=work, args=(self.store.environment, str(output), *arguments), daemon=True)
        process.start()
        self.running[target] = process
        self.everyone.append((target, process, output))

    def log_of(self, consumer: int) -> Path:
        return self.directory / f"c{consumer}.log"

    def run(self) -> Report:
        try:
            self._blow()
            self._settle()
        finally:
            for _, process, _ in self.everyone:
                self._kill(process)
        self._check()
        return self.report

    def _blow(self) -> None:
        for target in [*PRODUCERS, *(f"c{i}" for i in range(len(CONSUMERS))), *(f"m{i}" for i in range(MAINTAINERS))]:
            self.start(target)
        began = time.monotonic()
        for step in schedule(self.seed, self.seconds):
            while (left := step.at - (time.monotonic() - began)) > 0:
                time.sleep(min(0.05, left))
                self._wake()
            self._do(step)

    def _do(self, step: Step) -> None:
        process = self.running[step.target]
        if not process.is_alive():  # a fenced zombie's replacement may have met a newer one; start it again
            self.start(step.target)
            return
        if step.action == "kill":
            self._kill(process)
            self.report.kills += 1
            self.start(step.target)
            return
        os.kill(process.pid, signal.SIGSTOP)
        self.stopped.append((time.monotonic() + step.pause, process))
        if step.target[0] == "p":
            self.report.zombies += 1
            self.start(step.target)

    def _wake(self, everyone: bool = False) -> None:
        for entry in list(self.stopped):
            if everyone or entry[0] <= time.monotonic():
                self.stopped.remove(entry)
                if entry[1].is_alive():
                    os.kill(entry[1].pid, signal.SIGCONT)

    def _settle(self) -> None:
        """The barrier, then everyone to the end."""
        self.stream.close()
        self._wake(everyone=True)
        ends = time.monotonic() + 60
        for target, process, _ in self.everyone:
            if target[0] == "m":
                self._kill(process)
                continue
            process.join(max(0.1, ends - time.monotonic()))
            if process.is_alive():
                self.report.wrong.append(f"{target} did not end after the barrier")

    def _kill(self, process: BaseProcess) -> None:
        if process.is_alive():
            process.kill()
            self.killed.add(process)
        process.join()

    def _check(self) -> None:
        report, wrong = self.report, self.report.wrong
        for target, process, output in self.everyone:
            allowed = {0, FENCED} if target[0] == "p" else {0}
            if process not in self.killed and process.exitcode not in allowed:
                wrong.append(f"{target} ended with {process.exitcode}: {output.read_text()[-1500:]}")
            report.fenced += process.exitcode == FENCED
        described = self.stream.describe()
        report.versions, report.rows = described.version, sum(p.rows for p in described.producers)
        report.commits = sum(p.commits for p in described.producers)
        expected = {p.name: p.rows for p in described.producers}
        wrong += [f"verify: {problem}" for problem in self.stream.verify({"producer": "producer", "sequence": "seq"})]
        self._check_stored(expected)
        for group in {group for group, _, _ in CONSUMERS}:
            seen = [
                pair
                for i, (g, _, _) in enumerate(CONSUMERS)
                if g == group
                for _, batch in lines(self.log_of(i))
                for pair in batch
            ]
            wrong += [f"group {group}: {problem}" for problem in differences(seen, expected)]
        for producer in described.producers:
            acknowledged = [entry for log in self.directory.glob(f"{producer.name}.*.log") for entry in lines(log)]
            if any(cursor > producer.cursor for cursor, *_ in acknowledged):
                wrong.append(f"{producer.name}: an acknowledged cursor is beyond the committed one, {producer.cursor}")
            if len({version for _, version, *_ in acknowledged}) != len(acknowledged):
                wrong.append(f"{producer.name}: two appends were acknowledged at one version")
        try:
            self.stream.producer("late")
            wrong.append("a producer registered after the barrier")
        except StreamClosed:
            pass

    def _check_stored(self, expected: dict[str, int]) -> None:
        """The table and its archive together hold each sequence once."""
        tables = [self.stream.snapshot().to_table(["producer", "seq"])]
        if "archive" in self.policy and self.stream.describe().removed_rows:
            archive = Stream.open(self.archive_uri, storage_options=self.store.options)
            kept = archive.snapshot().to_table(["producer", "seq"])
            # rows are archived before they are removed, so what a killed run had archived may be in both
            cursor = archive.describe().producers[0].cursor
            self.report.archived = kept.num_rows
            tables = [kept, *(batch for batch in self._from(cursor))]
        seen = [
            pair
            for table in tables
            for pair in zip(table["producer"].to_pylist(), table["seq"].to_pylist(), strict=True)
        ]
        self.report.wrong += [f"table: {problem}" for problem in differences(seen, expected)]

    def _from(self, offset: int):
        below = self.stream.describe().removed_below
        return self.stream.consumer(group=None, offset=max(offset, below), columns=["producer", "seq"])


def differences(seen: list, expected: dict[str, int]) -> list[str]:
    """How `seen`, pairs of producer and number, differs from each producer's range, each number once."""
    found = Counter(tuple(pair) for pair in seen)
    wanted = {(name, i) for name, count in expected.items() for i in range(count)}
    twice, lost, alien = [p for p, n in found.items() if n > 1], wanted - found.keys(), found.keys() - wanted
    return [
        f"{len(pairs)} rows {what}, as {sorted(pairs)[:3]}"
        for what, pairs in (("twice", twice), ("lost", lost), ("that nobody committed", alien))
        if pairs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--store", choices=["local", "s3"], default="local")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch:
        server = seaweed(Path(scratch)) if given.store == "s3" else nullcontext(Store("local", scratch))
        with server as store:
            for seed in given.seed:
                directory = Path(scratch) / str(seed)
                directory.mkdir()
                report = Storm(store, directory, seed, given.seconds).run()
                print(given.store, report, flush=True)
                failed |= bool(report.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
