"""Pass rates: how often a model solves each problem, as the row's own verifier judges.

The model is asked behind an OpenAI-compatible endpoint, as vLLM's server gives one, or loaded here.
Requests carry the seed, so that the same model gives the same rates again.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from posttrain.data.config import ROOT, Tiers
from posttrain.data.schema import Example, to_json
from posttrain.data.tiers import PassRate
from posttrain.data.track import Track, untracked
from posttrain.errors import UserError
from posttrain.reward.score import score

_AT_ONCE = 32


class EndpointPassRate:
    """Asks `config.model` at `config.endpoint`. Raises UserError where it does not answer as it should."""

    def __init__(self, config: Tiers, seed: int, track: Track = untracked):
        self._config, self._seed, self._track = config, seed, track

    def __call__(self, examples: Sequence[Example]) -> list[float]:
        key = os.environ.get(self._config.key_variable, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with (
            httpx.Client(headers=headers, timeout=120.0, limits=httpx.Limits(max_connections=_AT_ONCE)) as client,
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            answers = pool.map(lambda example: self._ask(client, example), examples)
            tracked = self._track(zip(examples, answers, strict=True), "pass rates", len(examples))
            return [_rate(example, texts) for example, texts in tracked]

    def _ask(self, client: httpx.Client, example: Example) -> list[str]:
        config = self._config
        request = {
            "model": config.model, "messages": list(example.prompt), "n": config.samples, "seed": self._seed,
            "temperature": config.temperature, "max_tokens": config.max_tokens,
        }  # fmt: skip
        url = config.endpoint.rstrip("/") + "/chat/completions"
        try:
            answer = client.post(url, json=request)
            answer.raise_for_status()
            return [choice["message"]["content"] or "" for choice in answer.json()["choices"]]
        except httpx.HTTPStatusError as problem:
            what = f"HTTP {problem.response.status_code}"
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as problem:
            what = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise UserError(f"does not answer: {what}", field=f"{ROOT}.tiers.endpoint", value=url)


class ModelPassRate:
    """Loads the model in `directory` with vLLM, in a process of its own: vLLM sets torch's threads for good."""

    def __init__(self, directory: Path, config: Tiers, seed: int, track: Track = untracked):
        self._directory, self._config, self._seed, self._track = directory, config, seed, track

    def __call__(self, examples: Sequence[Example]) -> list[float]:
        rates = [0.0] * len(examples)
        for index, texts in self._track(self._answers(examples), "pass rates", len(examples)):
            rates[index] = _rate(examples[index], texts)
        return rates

    def _answers(self, examples: Sequence[Example]) -> Iterator[tuple[int, list[str]]]:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        rows = [(list(example.prompt), example.id) for example in examples]
        child = context.Process(target=_sample, args=(there, self._directory, self._config, self._seed, rows))
        child.start()
        there.close()
        try:
            while (message := here.recv()) is not None:
                if isinstance(message, UserError):
                    raise message
                yield message
        except EOFError:
            raise RuntimeError("the process that samples the model ended before its work") from None
        finally:
            child.terminate()
            child.join()


def _sample(answers: Connection, directory: Path, config: Tiers, seed: int, rows: list[tuple[list, str]]) -> None:
    """In the child: send (index, texts) for every row, then None; or the UserError that stopped it."""
    from posttrain.evaluation.sampler import Sampler
    from posttrain.evaluation.settings import Sampling
    from posttrain.serving.settings import EngineSettings

    settings = Sampling(samples=config.samples, temperature=config.temperature, max_tokens=config.max_tokens)
    conversations, names = [messages for messages, _ in rows], [name for _, name in rows]
    try:
        sampler = Sampler(directory, EngineSettings(context_length=0), seed=seed, field=f"{ROOT}.model")
        sampler.sample(
            conversations, names, settings, lambda index, found: answers.send((index, [each.text for each in found]))
        )
        answers.send(None)
    except UserError as problem:
        answers.send(problem)


def _rate(example: Example, texts: list[str]) -> float:
    metadata = to_json(example.metadata)
    return sum(score(example.verifier, example.answer, metadata, text).correct for text in texts) / len(texts)


def of(config: Tiers, directory: Path, seed: int, track: Track) -> PassRate:
    """What is asked under this configuration: the endpoint where one is given, else the model in `directory`."""
    if config.endpoint:
        return EndpointPassRate(config, seed, track)
    return ModelPassRate(directory, config, seed, track)
