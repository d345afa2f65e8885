"""Real vLLM servers that take their weights from Etha, a coordinator, and a publisher in this process."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import load_file, save_file

from posttrain.etha import plugin
from posttrain.etha.live import layout_of
from posttrain.etha.publisher import Publisher
from posttrain.models import tiny_tokenizer
from posttrain.serving.server import ModelServer
from posttrain.serving.settings import EngineSettings
from tests.etha import actors
from tests.etha.worlds import Actor
from tests.processes import free_port, wait_until

SECONDS = 280.0


class Engine:
    """A server, and what it answers."""

    def __init__(self, server: ModelServer):
        self.url = server.url
        self._server = server

    def ready(self) -> Engine:
        self._server.wait_healthy(SECONDS)
        return self

    def post(self, path: str, body: object = None) -> Any:
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=SECONDS)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def generate(self, prompt: Sequence[int], tokens: int = 16) -> dict[str, Any]:
        """Greedy; the choice with `token_ids`, `logprobs` and `weight_versions`."""
        sampling = {"temperature": 0, "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, "logprobs": 1}
        return self.post("/inference/v1/generate", {"token_ids": list(prompt), "sampling_params": sampling})["choices"][
            0
        ]

    def answers(self, prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], list[float]]]:
        """Tokens and log-probabilities for each prompt."""
        choices = [self.generate(prompt) for prompt in prompts]
        return [(c["token_ids"], [each["logprob"] for each in c["logprobs"]["content"]]) for c in choices]


class Cluster:
    """`with Cluster(directory) as cluster:` has a coordinator and a publisher that `publish` hands checkpoints to."""

    def __init__(self, directory: Path, **settings: Any):
        self._directory, self._stack = directory, ExitStack()
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._settings = {"database": str(directory / "etha.db"), "lease_seconds": 30.0} | settings
        self._tensors: dict[str, torch.Tensor] = {}

    def __enter__(self) -> Cluster:
        coordinator = Actor(actors.run_coordinator, self._settings, self._port, talks=False)
        self._stack.callback(coordinator.end)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def engine(self, model: Path, *, etha: bool = True, **settings: Any) -> Engine:
        """Start a server; `ready` waits for it. Without `etha` it knows nothing of it."""
        given = {"context_length": 512, "concurrency": 4, "threads": 1, "dtype": "float32"} | settings
        port = free_port()
        server = ModelServer(
            model, EngineSettings(**given), host="127.0.0.1", port=port, name="model",
            log_file=self._directory / f"{port}.log", options=plugin.OPTIONS if etha else {},
            variables=plugin.variables() if etha else {},
        )  # fmt: skip
        return Engine(self._stack.enter_context(server))

    def attach(self, engine: Engine, replica: str, **init: Any) -> None:
        info = {"coordinator": self.url, "replica": replica, "url": engine.url} | init
        engine.post("/init_weight_transfer_engine", {"init_info": info})

    def publish(self, checkpoint: Path) -> Publisher:
        """A publisher of the checkpoint's tensors, which `load` replaces."""
        self._tensors = load_file(checkpoint / "model.safetensors")
        held = layout_of(self._tensors)
        wait_until(lambda: _answers(self.url), "the coordinator does not answer")
        publisher = Publisher(self.url, held.layout, held.tensors)
        publisher.start()
        self._stack.callback(publisher.close)
        return publisher

    def load(self, checkpoint: Path) -> None:
        for name, tensor in load_file(checkpoint / "model.safetensors").items():
            self._tensors[name].copy_(tensor)


def build(family: str, configuration: dict[str, Any], target: Path) -> Path:
    """A checkpoint of the class with random weights, and a tokenizer, as servers ask for one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **configuration)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(target)
    tiny_tokenizer.build(configuration["max_position_embeddings"]).save_pretrained(target)
    return target


def changed(checkpoint: Path, target: Path, seed: int) -> Path:
    """The same model with every element moved by a tenth of its tensor's spread."""
    shutil.copytree(checkpoint, target)
    generator = torch.Generator().manual_seed(seed)
    tensors = load_file(checkpoint / "model.safetensors")
    for tensor in tensors.values():
        noise = torch.randn(tensor.shape, generator=generator)
        tensor.add_((0.1 * float(tensor.float().std(correction=0)) + 1e-3) * noise)
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return target


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/versions", timeout=2).is_success
    except httpx.TransportError:
        return False
