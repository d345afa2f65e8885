"""A checkpoint as a publisher: its files mapped into memory, for serving, canaries and recovery, by the same protocol.

Invariants: a file is read where a slice of it is wanted, and no more than that; what is published are the names, shapes
and dtypes of the files, and the output layer that a configuration ties to the embedding goes by its own name too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.errors import UserError
from posttrain.etha import formats
from posttrain.etha.layout import SourceLayout, TensorSpec, whole
from posttrain.etha.sending import digest_of_wants
from posttrain.etha.slices import Want

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.etha.live import Held

_TIED = ("lm_head.weight", "model.embed_tokens.weight")


def checkpoint(directory: Path, *, field: str = "checkpoint") -> Held:
    """All tensors of `*.safetensors` in the directory. Raises UserError naming `field` where there is none to read."""
    from safetensors import SafetensorError, safe_open

    from posttrain.etha.live import Held

    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise UserError("holds no safetensors file", field=field, value=str(directory))
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, "pt") as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as problem:
            raise UserError(f"cannot be read: {problem}", field=field, value=str(path)) from None
    found = whole(TensorSpec.of(name, tensor) for name, tensor in tensors.items())
    return Held(SourceLayout(found.specs, found.ranks, _aliases(directory, tensors)), tensors)


def digest(held: Held, wants: tuple[Want, ...]) -> str:
    """What a rank with these wants holds of the checkpoint, as it would say itself (`Checked.digest`)."""
    return digest_of_wants(_encoded(held, want) for want in dict.fromkeys(wants))


def _encoded(held: Held, want: Want) -> Tensor:
    name = held.layout.aliases.get(want.name, want.name)
    tensor = held.tensors.get(name)
    if tensor is None:
        raise UserError("is wanted, and the checkpoint has no tensor of that name", field="checkpoint", value=want.name)
    return formats.encode(tensor, want.format, want.box)


def _aliases(directory: Path, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    file = directory / "config.json"
    tied = file.is_file() and json.loads(file.read_text()).get("tie_word_embeddings", False)
    head, embedding = _TIED
    return {head: embedding} if tied and head not in tensors and embedding in tensors else {}
