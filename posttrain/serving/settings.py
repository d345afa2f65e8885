"""How vLLM is run: one set of settings for sampling offline and for serving, on a CPU or on GPUs.

Invariant: pure, and imports nothing heavy. The environment variables must be set before torch is imported: OpenMP
reads its own when it is loaded.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.errors import UserError


@dataclass
class EngineSettings:
    """`context_length` 0 takes the model's own. On a CPU the cache is `cache_gib`; on a GPU it takes what
    `gpu_memory_utilization` leaves. `compile` builds graphs at the start, which takes minutes on a CPU."""

    dtype: str = "auto"
    context_length: int = 1024
    concurrency: int = 64  # sequences decoded at once
    cache_gib: int = 1
    gpu_memory_utilization: float = 0.9
    tensor_parallel: int = 1
    threads: int = 0  # on a CPU; 0: all cores this process may use
    compile: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ("auto", "bfloat16", "float16", "float32"):
            remedy = "write auto, bfloat16, float16 or float32"
            raise UserError("is no type of weights", field="engine.dtype", value=self.dtype, remedy=remedy)
        for name, least in (("context_length", 0), ("concurrency", 1), ("cache_gib", 1), ("tensor_parallel", 1)):
            if getattr(self, name) < least:
                raise UserError(f"must be at least {least}", field=f"engine.{name}", value=getattr(self, name))
        if self.threads < 0:
            raise UserError("must be at least 0", field="engine.threads", value=self.threads)
        if not 0 < self.gpu_memory_utilization <= 1:
            remedy = "write a share between 0 and 1"
            value = self.gpu_memory_utilization
            raise UserError("is no share", field="engine.gpu_memory_utilization", value=value, remedy=remedy)


def on_gpu() -> bool:
    """Whether an NVIDIA GPU is visible; looks at the driver's devices, so that torch need not be loaded for it."""
    return Path("/dev/nvidiactl").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def variables(settings: EngineSettings, *, gpu: bool) -> dict[str, str]:
    """Environment variables for a process that will import vLLM.

    On a CPU the engine runs in the process itself instead of in a child of a child, each of which would import
    everything again. Its threads wait passively and unbound: with libgomp's default of spinning, pinned to cores,
    a neighbour on the same cores makes sampling several times slower.
    """
    common = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "HF_HUB_OFFLINE": "1",
    }
    if gpu:
        return common
    return common | {
        "VLLM_CPU_KVCACHE_SPACE": str(settings.cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(settings.threads or len(os.sched_getaffinity(0))),
        "OMP_WAIT_POLICY": "passive",
        "TORCH_COMPILE_DISABLE": "0" if settings.compile else "1",
    }


def engine_arguments(settings: EngineSettings, model: Path, *, gpu: bool, seed: int) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM`, which are the server's options too (`--max-model-len`, …)."""
    arguments: dict[str, Any] = {
        "model": str(model),
        "dtype": settings.dtype,
        "max_model_len": context_length(settings, model),
        "max_num_seqs": settings.concurrency,
        "tensor_parallel_size": settings.tensor_parallel,
        "enforce_eager": not settings.compile,
        "seed": seed,
    }
    if gpu:
        arguments["gpu_memory_utilization"] = settings.gpu_memory_utilization
    return arguments


def context_length(settings: EngineSettings, model: Path) -> int:
    """Tokens of prompt and answer together: what is asked for, at most what the model was made for."""
    own = int(json.loads((model / "config.json").read_text()).get("max_position_embeddings") or 0)
    asked = settings.context_length
    return min(asked, own) if asked and own else asked or own or 2048
