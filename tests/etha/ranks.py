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

    file, at, tensors = directory / "model.safetensors", 1000, {}
    if not file.exists():  # vLLM changes some classes of Transformers once it has served them
        config = AutoConfig.for_model(family, **configuration)
        kind = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
        kind.from_config(config, dtype=torch.float32).save_pretrained(directory)
    for name, tensor in load_file(file).items():
        tensors[name] = torch.arange(at, at + tensor.numel(), dtype=torch.float32).view(tensor.shape)
        at += tensor.numel()
    assert at < 2**24, "float32 has no more whole numbers"
    save_file(tensors, file, {"format": "pt"})
    return tensors


def specs(tensors: dict[str, torch.Tensor]) -> dict[str, TensorSpec]:
    return {name: TensorSpec.of(name, tensor) for name, tensor in tensors.items()}


@contextmanager
def rank(directory: Path, number: int, of: int, *, dtype: str = "float32", **engine: Any) -> Iterator[VllmConfig]:
    """Within, this process is rank `number` of `of` that share the model; no other rank need be there. `engine` are
    arguments of vLLM's engine."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, parallel_state
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(
        model=str(directory), skip_tokenizer_init=True, enforce_eager=True, dtype=dtype, max_model_len=64,
        tensor_parallel_size=of, **engine,
    )  # fmt: skip
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{tempfile.mkdtemp()}/rendezvous", 0, "gloo")
        config.parallel_config.tensor_parallel_size = 1
        parallel_state.initialize_model_parallel(1)
        config.parallel_config.tensor_parallel_size = of
        for group in filter(None, (parallel_state._TP, parallel_state._EP)):
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


def load(model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """From a checkpoint, as vLLM does at its start: loaders may write into what they are given."""
    import torch

    with torch.no_grad():
        model.load_weights((name, tensor.clone()) for name, tensor in tensors.items())  # type: ignore[operator]


def served(config: VllmConfig, tensors: dict[str, torch.Tensor]) -> nn.Module:
    """The model as it is when requests come: loaded, and processed for this machine."""
    import torch
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    model = empty(config)
    load(model, tensors)
    process_weights_after_loading(model, config.model_config, torch.device("cpu"))
    return model


def contents(model: nn.Module) -> dict[str, torch.Tensor]:
    """Everything that is made of weights: parameters, buffers, tensors that modules keep, what packed layers answer."""
    import torch

    found = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, layer in model.named_modules():
        found |= {f"{name}.{key}": value for key, value in vars(layer).items() if isinstance(value, torch.Tensor)}
        if "cpu_linear" in vars(layer):
            sizes = (getattr(layer, key, None) for key in ("input_size_per_partition", "input_size", "embedding_dim"))
            inputs = torch.linspace(-1, 1, 2 * next(filter(None, sizes))).view(2, -1).to(layer.weight.dtype)
            found[f"{name} packed"] = layer.cpu_linear(inputs, layer.weight, None)
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def numbers(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The whole numbers above 999 in `tensors`, each once."""
    import torch

    found = torch.cat([tensor.detach().flatten().to(torch.float64) for tensor in tensors]).unique()
    return found[found > 999]
