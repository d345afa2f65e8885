"""Pass rates of a model behind an OpenAI-compatible endpoint, as vLLM's server gives one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx

from posttrain.data.config import ROOT, Tiers
from posttrain.data.schema import Example, to_json
from posttrain.data.track import Track, untracked
from posttrain.errors import UserError

_AT_ONCE = 32
_FIELD = f"{ROOT}.tiers.endpoint"

Score = Callable[[str, str, str, str], bool]  # (verifier, answer, metadata as JSON, completion) -> right?


class EndpointPassRate:
    """Asks `config.samples` answers to every prompt and has each judged by the row's verifier.

    Requests carry the seed, so that a server that honours it gives the same rates again.
    """

    def __init__(self, config: Tiers, score: Score, seed: int, track: Track = untracked):
        self._config, self._score, self._seed, self._track = config, score, seed, track

    def __call__(self, examples: Sequence[Example]) -> list[float]:
        key = os.environ.get(self._config.key_variable, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with (
            httpx.Client(headers=headers, timeout=120.0, limits=httpx.Limits(max_connections=_AT_ONCE)) as client,
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            rates = pool.map(lambda example: self._rate(client, example), examples)
            return list(self._track(rates, "pass rates", len(examples)))

    def _rate(self, client: httpx.Client, example: Example) -> float:
        config = self._config
        request = {
            "model": config.model, "messages": list(example.prompt), "n": config.samples, "seed": self._seed,
            "temperature": config.temperature, "max_tokens": config.max_tokens,
        }  # fmt: skip
        url = config.endpoint.rstrip("/") + "/chat/completions"
        try:
            answer = client.post(url, json=request)
            answer.raise_for_status()
            completions = [choice["message"]["content"] or "" for choice in answer.json()["choices"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as problem:
            what = (str(problem).splitlines() or [type(problem).__name__])[0]
            shown = urlsplit(url)._replace(query="").geturl()
            raise UserError(f"does not answer: {what}", field=_FIELD, value=shown) from None
        metadata = to_json(example.metadata)
        right = [self._score(example.verifier, example.answer, metadata, text) for text in completions]
        return sum(right) / len(right)
