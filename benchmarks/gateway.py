"""The gateway's overhead against talking to the engine straight, and what parsing an answer costs.

    python -m benchmarks.gateway [--seconds 5] [--streams 1 16 128]

The engine is a stand-in that answers at once with the ids of one word, so that what is measured is the way there and
back: authentication, conversion, template, tokens, the engine's answer parsed and converted. A client asks it by ids
in one run and through the gateway (Chat Completions, one message) in the next; the overhead is the difference of the
two. Engine, gateway and client are processes of their own and share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from posttrain.llmm.tokens.parsers import FORMATS, parser_for
from tests.llmm.gateway.conftest import CLIENT, Gateway, gateway
from tests.llmm.tokens.families import model

FAMILY, MEDIAN_MS, P99_MS = "qwen2_5", 1.0, 5.0  # the bar: at 1 stream the median, at 16 the 99th percentile
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {CLIENT}"}


@dataclass(frozen=True)
class Measured:
    """Milliseconds of each request."""

    times: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return sorted(self.times)[int(len(self.times) * 0.99)]


async def ask(url: str, body: str, streams: int, seconds: float) -> Measured:
    times: list[float] = []

    async def one(client: aiohttp.ClientSession, until: float) -> None:
        while (started := time.perf_counter()) < until:
            async with client.post(url, data=body, headers=HEADERS) as answer:
                await answer.read()
                assert answer.status == 200
            times.append(1e3 * (time.perf_counter() - started))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        for duration in (0.5, seconds):  # the first time warms up
            times.clear()
            until = time.perf_counter() + duration
            await asyncio.gather(*(one(client, until) for _ in range(streams)))
    return Measured(times)


def overhead(served: Gateway, streams: int, seconds: float) -> tuple[Measured, Measured]:
    """Straight to the engine, and through the gateway."""
    message = [{"role": "user", "content": "hi"}]
    known = model(FAMILY)
    ids = known.codec.encode(known.template.render(message).text)
    straight = json.dumps({"request_id": "x", "token_ids": ids, "sampling_params": {"n": 1}, "stream": False})
    through = json.dumps({"model": "policy", "messages": message})
    return (
        asyncio.run(ask(served.engines[0] + "/inference/v1/generate", straight, streams, seconds)),
        asyncio.run(ask(served.url + "/v1/chat/completions", through, streams, seconds)),
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
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 128])
    arguments = parser.parse_args()
    table = Table("streams", "engine p50 ms", "gateway p50 ms", "overhead p50 ms", "p99 ms", "requests/s", "ratio p50")
    with tempfile.TemporaryDirectory() as directory, gateway(Path(directory)) as served:
        for streams in arguments.streams:
            straight, through = overhead(served, streams, arguments.seconds)
            table.add_row(
                str(streams), f"{straight.median:.2f}", f"{through.median:.2f}",
                f"{through.median - straight.median:.2f}", f"{through.p99 - straight.p99:.2f}",
                f"{len(through.times) / arguments.seconds:.0f}", f"{through.median / straight.median:.2f}",
            )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(f"bar: below {MEDIAN_MS:g} ms at the median of 1 stream, below {P99_MS:g} ms at p99 of 16")
    console.print(f"detokenising and parsing a streamed answer: {parsing():.1f} µs a token")


if __name__ == "__main__":
    main()
