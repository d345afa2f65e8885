"""One process of a storm: a producer, a consumer or a maintainer. Killed and stopped from outside at any moment.

The store's options come from the environment. A log is a file of lines; a line without its newline was cut off
by a kill and does not count. It ends with 3 when it was fenced and with 0 when the stream was closed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path

import pyarrow as pa

from posttrain.lakestream import Policy, ProducerFenced, Stream, StreamClosed

SCHEMA = pa.schema(
    [
        pa.field("producer", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        ("text", pa.string()),
    ]
)
FENCED = 3


def rows(name: str, first: int, count: int) -> pa.Table:
    """`count` rows of producer `name`, numbered from `first`."""
    seq = range(first, first + count)
    return pa.table([[name] * count, list(seq), [f"{name} {i}" for i in seq]], schema=SCHEMA)


def lines(log: Path) -> list:
    """The whole lines of `log`, decoded."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]


def produce(uri: str, name: str, seed: str, log: str) -> int:
    stream = Stream.open(uri)
    producer = stream.producer(name)
    choose = random.Random(f"{seed}/{name}/{producer.epoch}")
    with open(log, "a") as acknowledged:
        while True:
            # the cursor counts rows and commits, because it must move on without rows too
            done, commits = producer.cursor or (0, 0)
            count = choose.choice([0, 1, 7, 40])
            committed = producer.append(rows(name, done, count), [done + count, commits + 1])
            acknowledged.write(json.dumps([committed.cursor, committed.version, committed.first, committed.end]) + "\n")
            acknowledged.flush()
            time.sleep(choose.random() * 0.04)


def consume(uri: str, group: str, index: str, count: str, log: str) -> int:
    stream = Stream.open(uri)
    path = Path(log)
    done = lines(path)
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    consumer = stream.consumer(
        int(index), int(count), group=group, offset=done[-1][0] if done else None, max_rows=200, max_latency=0.05
    )
    with open(path, "a") as checkpoint:
        for batch in consumer:
            seen = list(zip(batch["producer"].to_pylist(), batch["seq"].to_pylist(), strict=True))
            checkpoint.write(json.dumps([consumer.offset, seen]) + "\n")
            checkpoint.flush()
            stream.acknowledge(consumer)
    return 0


def keep(uri: str, policy: str) -> int:
    stream = Stream.open(uri)
    wanted = Policy(**json.loads(policy))
    while True:
        stream.maintain(wanted, force=False)
        time.sleep(0.05)


ROLES = {"producer": produce, "consumer": consume, "maintainer": keep}


def work(environment: dict[str, str], output: str, role: str, *arguments: str) -> None:
    """The process's whole life; what it prints, a traceback too, goes to the file `output`."""
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update(environment)
    try:
        code = ROLES[role](*arguments)
    except ProducerFenced:
        code = FENCED
    except StreamClosed:
        code = 0
    sys.exit(code)


@cache
def processes() -> BaseContext:
    """Processes forked from a server that has imported everything and touched nothing: they start in no time."""
    context = multiprocessing.get_context("forkserver")
    os.environ.setdefault("LANCE_LOG", "error")  # read when Lance is loaded, in the server
    context.set_forkserver_preload(["tests.lakestream.worker"])
    return context
