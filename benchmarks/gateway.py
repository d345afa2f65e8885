"""The gateway's overhead against talking to the engine straight, and what parsing an answer costs.

    python -m benchmarks.gateway [--seconds 5] [--streams 1 16 128]

The engine is a stand-in. It answers at once: with the first token of an answer, and then a token each 50 ms, as an
engine does that has the streams to decode. A client asks it by ids in one run and through the gateway (Chat
Completions, one message) in the next. The overhead of a request is how much later its first event comes: the way there
and back, with authentication, conversion, template, tokens, the engine's answer parsed and converted, while the other
streams' tokens are passed on. At a quantile it is the difference of the two runs' quantiles.

Streams that get the whole answer at once and ask again at once wait for each other's turn on the processor, however
little each needs: N of them wait N times the work of one. `flat out` is that run, for the requests a second that the
machine can do. Engine, gateway and client are processes of their own and share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
from rich.console import Console
from rich.table import Table

from posttrain.llmm.tokens.parsers import FORMATS, parser_for
from tests.llmm.gateway.conftest import CLIENT, Gateway, gateway
from tests.llmm.tokens.families import model

FAMILY, STREAMS, MEDIAN_MS, P99_MS = "qwen2_5", 16, 1.0, 5.0  # the bar, at so many streams
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {CLIENT}"}
SLOW, QUICK = 'SCRIPT ["@slow hello you"] END', "hi"  # seven tokens, and two


@dataclass(frozen=True)
class Measured:
    """Milliseconds of each request, and of the server's processor for one."""

    times: list[float]
    busy: float

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return sorted(self.times)[int(len(self.times) * 0.99)]


async def ask(url: str, body: str, server: int, streams: int, seconds: float) -> Measured:
    """Times to the first bytes of each answer. `server` is the process that is asked."""
    process, times = psutil.Process(server), list[float]()

    async def one(client: aiohttp.ClientSession, until: float, number: int) -> None:
        await asyncio.sleep(random.Random(number).uniform(0, 0.5))  # streams do not go in step
        while (started := time.perf_counter()) < until:
            async with client.post(url, data=body, headers=HEADERS) as answer:
                await answer.content.readany()
                times.append(1e3 * (time.perf_counter() - started))
                await answer.read()
                assert answer.status == 200

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        for duration in (1.0, seconds):  # the first time warms up
            times.clear()
            before = sum(process.cpu_times()[:2])
            until = time.perf_counter() + duration
            await asyncio.gather(*(one(client, until, number) for number in range(streams)))
        busy = sum(process.cpu_times()[:2]) - before
    return Measured(times, 1e3 * busy / len(times))


def overhead(served: Gateway, streams: int, seconds: float, text: str) -> tuple[Measured, Measured]:
    """Straight to the engine, and through the gateway. What is `SLOW` is streamed."""
    message, events = [{"role": "user", "content": text}], text is SLOW
    known = model(FAMILY)
    ids = known.codec.encode(known.template.render(message).text)
    straight = json.dumps({"request_id": "x", "token_ids": ids, "sampling_params": {"n": 1}, "stream": events})
    through = json.dumps({"model": "policy", "messages": message, "stream": events})
    itself, engine = (process.pid for process in served.processes)
    return (
        asyncio.run(ask(served.engines[0] + "/inference/v1/generate", straight, engine, streams, seconds)),
        asyncio.run(ask(served.url + "/v1/chat/completions", through, itself, streams, seconds)),
    )


def parsing(tokens: int = 20_000) -> float:
    """Microseconds for each token of an answer with thoughts and calls that comes token by token."""
    known, call = model(FAMILY), '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
    ids = (known.codec.encode(f"<think>\nsome thoughts\n</think>\n\nsome words {call}") * tokens)[:tokens]
    stream, parser = known.codec.stream(), parser_for(FORMATS["hermes"])
    started = time.perf_counter()
    for token in ids:
        parser.feed(stream.feed([token]))
    return 1e6 * (time.perf_counter() - started) / tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, STREAMS, 128])
    arguments = parser.parse_args()
    columns = ("engine p50", "gateway p50", "overhead p50", "engine p99", "gateway p99", "overhead p99")
    table = Table("streams", *(f"{column} ms" for column in columns))
    flat = Table("flat out: streams", "engine requests/s", "gateway requests/s", "gateway's processor ms a request")
    failed = False
    with tempfile.TemporaryDirectory() as directory, gateway(Path(directory)) as served:
        for streams in arguments.streams:
            straight, through = overhead(served, streams, arguments.seconds, SLOW)
            median, p99 = through.median - straight.median, through.p99 - straight.p99
            figures = (straight.median, through.median, median, straight.p99, through.p99, p99)
            table.add_row(str(streams), *(f"{each:.2f}" for each in figures))
            failed = failed or (streams == STREAMS and (median >= MEDIAN_MS or p99 >= P99_MS))
            both = overhead(served, streams, arguments.seconds, QUICK)
            rates = (f"{len(each.times) / arguments.seconds:.0f}" for each in both)
            flat.add_row(str(streams), *rates, f"{both[1].busy:.2f}")
    console = Console()
    console.print(table, flat)
    verdict = "FAILS" if failed else "holds"
    console.print(
        f"{verdict}: overhead below {MEDIAN_MS:g} ms at the median and {P99_MS:g} ms at p99 of {STREAMS} streams"
    )
    console.print(f"detokenising and parsing a streamed answer: {parsing():.1f} µs a token")
    sys.exit(failed)


if __name__ == "__main__":
    main()
