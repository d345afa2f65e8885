"""A Hugging Face model made ready for training.

Invariants: what the optimiser changes is float32, whatever the computation's type. For bfloat16 the model itself holds
rounded copies, which are what runs and what is exported, and the float32 weights stand beside: in pure bfloat16 an
update smaller than 1/256 of a weight is lost. Only weights that are trained have a float32 copy (with LoRA: the
adapters).

Copies, not autocast: on a CPU both are equally fast, and copies compute as the sampler does that later
loads the weights, where autocast keeps the residual stream in float32.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import is_flash_attn_2_available
from transformers.utils import logging as transformers_logging

from posttrain.errors import UserError
from posttrain.training import attention
from posttrain.training.config import Learning, Lora

log = logging.getLogger(__name__)

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class TrainedModel:
    """A model with the float32 weights that are trained.

    `module` is the Hugging Face model that computes; `weights` maps names to the float32 parameters that an
    optimiser holds. `collect` moves gradients to them, `publish` rounds them back into the module. With `critic` the
    module has a linear layer more, `value_head`, which begins at 0 and is not part of what is stored.
    """

    def __init__(self, model: PreTrainedModel, config: Learning, device: torch.device, *, critic: bool = False):
        self.adapted = _with_adapters(model, config.lora) if config.lora.rank else None
        self.module: PreTrainedModel = model
        if critic:
            model.value_head = torch.nn.Linear(model.config.get_text_config().hidden_size, 1)
            torch.nn.init.zeros_(model.value_head.weight)
            torch.nn.init.zeros_(model.value_head.bias)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        dtype = DTYPES[config.dtype]
        model.to(device)  # type: ignore[arg-type]
        self._copies = dtype != torch.float32
        if self._copies:
            self.weights = {n: torch.nn.Parameter(p.detach().float().clone()) for n, p in trained.items()}
            _round(model, dtype)
        else:
            self.weights = trained
        self._computing = [trained[name] for name in self.weights]
        if config.recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()

    def collect(self) -> None:
        """Add the gradients of the pass that just ended to the float32 weights'."""
        if not self._copies:
            return
        for weight, computing in zip(self.weights.values(), self._computing, strict=True):
            if computing.grad is None:
                continue
            if weight.grad is None:
                weight.grad = computing.grad.float()
            else:
                weight.grad.add_(computing.grad)
            computing.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Let the module compute with the weights as they are now."""
        if self._copies:
            copies = [computing.data for computing in self._computing]
            torch._foreach_copy_(copies, [weight.data for weight in self.weights.values()])

    @torch.no_grad()
    def finish(self, dtype: torch.dtype) -> PreTrainedModel:
        """The model as it is to be stored: adapters merged in float32, then rounded. Training is over after it."""
        self.module.float()
        for weight, computing in zip(self.weights.values(), self._computing, strict=True):
            computing.copy_(weight)
        if hasattr(self.module, "value_head"):
            del self.module.value_head
        model = self.module if self.adapted is None else self.adapted.merge_and_unload()
        _round(model, dtype)
        return model  # type: ignore[return-value]


def load_model(path: Path, config: Learning, *, field: str = "model", critic: bool = False) -> TrainedModel:
    """The model in the Hugging Face directory `path`. Raises UserError naming `field` where there is none."""
    device = choose_device(config.device)
    transformers_logging.disable_progress_bar()  # a line of it for each shard would break the step's own
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, SafetensorError) as problem:
        raise UserError(
            f"cannot be loaded: {str(problem).strip().splitlines()[0]}", field=field, value=str(path),
            remedy="give a Hugging Face directory with config.json and safetensors",
        ) from None  # fmt: skip
    model.set_attn_implementation(choose_attention(model, config.attention, device))
    return TrainedModel(model, config, device, critic=critic)


def _round(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Give the parameters `dtype`. Not the buffers: rotary frequencies need their precision."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def choose_device(wanted: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("is not there", field="device", value=wanted, remedy="set device to cpu or auto")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def choose_attention(model: PreTrainedModel, wanted: str, device: torch.device) -> str:
    """The name of Transformers' implementation that keeps packed documents apart, and is fastest where it runs."""
    if wanted == "auto":
        if device.type == "cuda":
            wanted = "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
        elif _attends_plainly(model):
            wanted = "documents"
        else:  # sdpa leaves a cap on the scores out without a word
            capped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
            wanted = "eager" if capped or not model._supports_sdpa else "sdpa"
    if wanted == "documents":
        attention.register()
        return attention.NAME
    return wanted


def _attends_plainly(model: PreTrainedModel) -> bool:
    """Whether every layer attends to the whole document before it: no window, no cap, no sinks."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    special = ("sliding_window", "attn_logit_softcapping", "attention_chunk_size")
    return kinds == {"full_attention"} and not any(getattr(config, name, None) for name in special)


def _with_adapters(model: PreTrainedModel, config: Lora) -> PeftModel:
    targets = config.targets[0] if config.targets == ["all-linear"] else config.targets
    settings = LoraConfig(
        r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=targets,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    try:
        return get_peft_model(model, settings)  # type: ignore[return-value]
    except ValueError as problem:
        raise UserError(str(problem).splitlines()[0], field="lora.targets", value=list(config.targets)) from None
