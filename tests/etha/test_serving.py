"""A live FSDP2 trainer pushes into two vLLM replicas under load: nobody waits, nothing is mixed or goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from posttrain.etha.coordinator.client import EthaClient
from posttrain.models import tiny
from posttrain.models.config import TinyShape
from tests.etha.live import Cluster, Engine
from tests.etha.worlds import Actor
from tests.processes import free_port

pytestmark = [pytest.mark.xdist_group("etha-vllm"), pytest.mark.slow]
PROMPTS = [[5, 9, 11, 3, 7], list(range(3, 40)), [8] * 12]
VERSIONS = 4


def run_trainer(orders: Connection, url: str, model: str, rank: int, ranks: int, port: int, kept: str) -> None:
    """For each order: a step of SGD, the whole model written down by rank 0, a push."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    from posttrain.etha.live import layout_of
    from posttrain.etha.publisher import Publisher

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    trained = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for layer in trained.model.layers:
        fully_shard(layer)
    fully_shard(trained)
    held = layout_of(trained)
    publisher = Publisher(url, held.layout, held.tensors, rank=rank, ranks=ranks)
    publisher.start()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5)
    orders.send("ready")
    while (version := orders.recv()) is not None:
        tokens = torch.randint(3, 100, (4, 32), generator=torch.Generator().manual_seed(version * ranks + rank))
        trained(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        state = get_model_state_dict(trained, options=StateDictOptions(full_state_dict=True))
        if rank == 0:
            torch.save(state, f"{kept}/{version}.pt")
        outcome = publisher.push(version, timeout=200, until="serving")
        orders.send((version, outcome.state, sorted(outcome.serving)))
    publisher.close()
    dist.destroy_process_group()


@dataclass
class Answer:
    replica: str
    began: float
    prompt: int
    spans: list[dict]
    tokens: list[int]
    logprobs: list[float]

    @property
    def versions(self) -> list[int]:
        return [0 if s["weight_version"] == "default" else int(s["weight_version"]) for s in self.spans]


@dataclass
class Load:
    """Clients that ask whom the coordinator says may be asked, one request after the other."""

    engines: dict[str, Engine]
    client: EthaClient
    over: threading.Event = field(default_factory=threading.Event)
    answers: list[Answer] = field(default_factory=list)
    nobody: int = 0

    def ask(self, number: int) -> None:
        count = number
        while not self.over.is_set():
            may = [view.replica for view in self.client.versions().replicas if view.traffic]
            if not may:
                self.nobody += 1
                continue
            count += 1
            replica, prompt = may[count % len(may)], count % len(PROMPTS)
            began = time.monotonic()
            choice = self.engines[replica].generate(PROMPTS[prompt], 24)
            told = [each["logprob"] for each in choice["logprobs"]["content"]]
            self.answers.append(Answer(replica, began, prompt, choice["weight_versions"], choice["token_ids"], told))


def test_replicas_follow_a_live_trainer_while_they_are_asked(tmp_path: Path) -> None:
    model, kept = tmp_path / "model", tmp_path / "kept"
    kept.mkdir()
    tiny.build(model, TinyShape(), 1)
    with Cluster(tmp_path) as cluster:
        engines = {name: cluster.engine(model) for name in ("a", "b")}
        rendezvous = free_port()
        trainers = [Actor(run_trainer, cluster.url, str(model), rank, 2, rendezvous, str(kept)) for rank in range(2)]
        try:
            assert all(trainer.hears(200) == "ready" for trainer in trainers)
            for name, engine in engines.items():
                cluster.attach(engine.ready(), name)
            load = Load(engines, EthaClient(cluster.url))
            with ThreadPoolExecutor(4) as pool:
                asking = [pool.submit(load.ask, number) for number in range(4)]
                try:
                    for version in range(1, VERSIONS + 1):
                        for trainer in trainers:
                            assert trainer.orders is not None
                            trainer.orders.send(version)
                        told = [trainer.hears(200) for trainer in trainers]
                        assert told == [(version, "committed", ["a", "b"])] * 2
                        time.sleep(0.5)
                finally:
                    load.over.set()
            for future in asking:
                future.result()  # no request failed
        finally:
            for trainer in trainers:
                trainer.end()
    check(load, model, kept)


def check(load: Load, model: Path, kept: Path) -> None:
    assert load.nobody == 0, "at some moment there was nobody to ask"
    for name in load.engines:
        of_one = sorted((a for a in load.answers if a.replica == name), key=lambda a: a.began)
        assert {version for answer in of_one for version in answer.versions} >= {0, VERSIONS}
        for answer in of_one:
            assert answer.versions == sorted(answer.versions)
            assert answer.spans[0]["start"] == 0 and answer.spans[-1]["end"] == 24
        # Whoever is asked later is not answered by an earlier version.
        assert all(before.versions[0] <= after.versions[-1] for before, after in pairwise(of_one))
    for version in range(VERSIONS + 1):
        whole = [a for a in load.answers if a.versions == [version]]
        assert whole, f"nobody answered with version {version} alone"
        state = torch.load(kept / f"{version}.pt") if version else None
        for answer in whole[:3] + whole[-3:]:
            expected = log_probabilities(model, state, PROMPTS[answer.prompt], answer.tokens)
            assert answer.logprobs == pytest.approx(expected, abs=2e-3), f"not the weights of version {version}"


def log_probabilities(
    model: Path, state: dict[str, torch.Tensor] | None, prompt: Sequence[int], answer: Sequence[int]
) -> list[float]:
    """Of the answer's tokens by Transformers, with the weights of a version."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if state is not None:
        reference.load_state_dict(state)
    with torch.no_grad():
        logits = reference(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return logits[torch.arange(len(answer)), list(answer)].tolist()
