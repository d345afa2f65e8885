"""vLLM's reloading of a live model, and what has to be done beside it so that the model is as one started anew.

    begin(model)
    load(model, specs, staged)          # wants.py
    finish(model, model_config)

vLLM loads layer by layer into fresh memory, processes the layer as at its start and copies the result to where the old
one lies. On a CPU that leaves two things at the version before, silently: the packed copy of an output layer that
shares the embedding's weight, and experts, whose weights are packed only when their kernel is made for the first time.
Invariant: `begin` may come after anything, `finish` or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import _place_kernel_tensors, get_layerwise_info
from vllm.platforms import current_platform


def begin(model: nn.Module) -> None:
    """Have vLLM wait for all the weights, whatever an update before this one has left undone."""
    for layer in model.modules():
        info = get_layerwise_info(layer)
        if info.can_load():
            _place_kernel_tensors(layer, info)
            info.reset()
    for method in _expert_methods(model):
        method.kernel_before, method.moe_kernel = method.moe_kernel or method.kernel_before, None
    initialize_layerwise_reload(model)


def finish(model: nn.Module, model_config: Any) -> None:
    """Process what was loaded, where vLLM has not done so yet."""
    finalize_layerwise_reload(model, model_config)
    for method in _expert_methods(model):
        method.moe_kernel = method.moe_kernel or method.kernel_before
        method.kernel_before = None
    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        if "cpu_linear" in vars(layer) and isinstance(weight, torch.Tensor) and weight.numel():
            layer.quant_method.process_weights_after_loading(layer)  # type: ignore[union-attr, operator]


def _expert_methods(model: nn.Module) -> Iterator[Any]:
    """What makes the experts' kernels, on a CPU."""
    if current_platform.is_cpu():
        for layer in model.modules():
            method: Any = getattr(layer, "quant_method", None)
            if hasattr(method, "moe_kernel"):
                method.kernel_before = getattr(method, "kernel_before", None)
                yield method
