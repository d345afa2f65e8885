"""vLLM's models as an inference rank has them, made in this process without an engine. Run in a process of its own
(`alone`): vLLM's process groups and settings are the whole process's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.etha.layout import TensorSpec
from posttrain.serving.settings import EngineSettings, variables

if TYPE_CHECKING:
    import torch
    from torch import nn
    from vllm.config import VllmConfig


def alone() -> ProcessPoolExecutor:
    """A process to run these functions in, which has what vLLM's start has to find."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    os.environ.update(variables(EngineSettings(threads=1), gpu=False))
    import transformers
    from vllm.model_executor.models import registry

    # vLLM looks at each class in a process of its own, which imports everything again, to keep CUDA out of this one.
    registry._run_in_subprocess = lambda look: look()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def checkpoint(family: str, configuration: dict[str, Any], directory: Path) -> dict[str, torch.Tensor]:
    """Write a checkpoint of the class as Transformers does, but every element is another whole number above 999."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    config = AutoConfig.for_model(family, **configuration)
    kind = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    kind.from_config(config, dtype=torch.float32).save_pretrained(directory)
    file, at, tensors = directory / "model.safetensors", 1000, {}
    for name, tensor in load_file(file).items():
        tensors[name] = torch.arange(at, at + tensor.numel(), dtype=torch.float32).view(tensor.shape)
        at += tensor.numel()
    assert at < 2**24, "float32 has no more whole numbers"
    save_file(tensors, file, {"format": "pt"})
    return tensors


def specs(tensors: dict[str, torch.Tensor]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in tensors.items()
    }


@contextmanager
def rank(directory: Path, number: int = 0, of: int = 1, dtype: str = "float32") -> Iterator[VllmConfig]:
    """Within, this process is rank `number` of `of` that share the model; no other rank need be there."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, parallel_state
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(
        model=str(directory), skip_tokenizer_init=True, enforce_eager=True, dtype=dtype, max_model_len=64,
        tensor_parallel_size=of,
    )  # fmt: skip
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{tempfile.mkdtemp()}/rendezvous", 0, "gloo")
        config.parallel_config.tensor_parallel_size = 1
        parallel_state.initialize_model_parallel(1)
        config.parallel_config.tensor_parallel_size = of
        group = parallel_state.get_tp_group()
        group.rank_in_group, group.world_size = number, of
        try:
            yield config
        finally:
            parallel_state.destroy_model_parallel()


def empty(config: VllmConfig) -> nn.Module:
    """The model before anything is loaded: zeros, so that what no loader writes is alike."""
    import torch
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config.compilation_config.static_forward_context.clear()
    with set_default_torch_dtype(config.model_config.dtype):
        model = initialize_model(config)
    with torch.no_grad():
        for tensor in model.state_dict(keep_vars=True).values():
            tensor.zero_()
    return model


def contents(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def numbers(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The whole numbers above 999 in `tensors`, each once."""
    import torch

    found = torch.cat([tensor.detach().flatten().to(torch.float64) for tensor in tensors]).unique()
    return found[found > 999]
