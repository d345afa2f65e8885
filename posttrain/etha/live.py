"""What this rank of a trainer holds, seen from its model: plain tensors, or DTensors of FSDP2 and tensor parallelism.

The tensors that go with the layout are views of the model's own memory: what an optimizer writes is what the next push
sends. Names are those of the Hugging Face checkpoint; wrappers that put themselves into names are taken out of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from posttrain.errors import UserError
from posttrain.etha.layout import Maker, Piece, RankLayout, SourceLayout, TensorSpec, pieces
from posttrain.etha.slices import Box

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Adapters = Literal["merged", "apart"]
WRAPPERS = re.compile(r"(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")
ADAPTER = re.compile(r"\.(lora_\w+?)(?:\.(?!weight\b|bias\b)\w+)?(?=\.|$)")  # with peft's name of the adapter, if any
PEFT = "base_model.model."


class Held(NamedTuple):
    """The layout of one rank, and its local tensors by the same names."""

    layout: SourceLayout
    tensors: Mapping[str, Tensor]


class Stacked(NamedTuple):
    """Experts that a live model keeps as one tensor (experts, rows, columns), and a checkpoint as one or more for each.

    `suffix` is how the live name ends; `parts` are the endings of the checkpoint's names, with {} for the expert, in
    the order in which they share the rows evenly.
    """

    suffix: str
    parts: tuple[str, ...]


EXPERTS = (
    Stacked("experts.gate_up_proj", ("experts.{}.gate_proj.weight", "experts.{}.up_proj.weight")),
    Stacked("experts.down_proj", ("experts.{}.down_proj.weight",)),
)  # of Qwen and DeepSeek in Transformers 5


def layout_of(
    model: Module | Mapping[str, Tensor], adapters: Adapters | None = None, stacked: Iterable[Stacked] = ()
) -> Held:
    """Parameters and persistent buffers of the model, or of its state dict, as this rank holds them.

    LoRA adapters of peft: "merged" gives the layout without them, for weights that are merged in place before a push;
    "apart" sends the base as it is and the adapters under the names in which peft saves them.
    """
    state = model if isinstance(model, Mapping) else model.state_dict(keep_vars=True)
    by: Maker | None = "fsdp2" if not isinstance(model, Mapping) and _is_fsdp2(model) else None
    specs: dict[str, TensorSpec] = {}
    held: dict[str, tuple[Piece, ...]] = {}
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[object, str] = {}
    for name, tensor in _named(state, adapters):
        if (first := seen.setdefault(_identity(tensor), name)) != name:
            aliases[name] = first
            continue
        local, its = _local(name, tensor, by)
        spec = TensorSpec.of(name, tensor)
        rule = next((rule for rule in stacked if name.endswith(rule.suffix)), None)
        for part, boxes, view in [(spec, its, local)] if rule is None else _unstacked(spec, its, local, rule):
            specs[part.name] = part
            if boxes:
                held[part.name], tensors[part.name] = boxes, view
    return Held(SourceLayout(specs, (RankLayout(held),), aliases), tensors)


def _named(state: Mapping[str, Tensor], adapters: Adapters | None) -> Iterator[tuple[str, Tensor]]:
    from torch import Tensor

    for key, tensor in state.items():
        if not isinstance(tensor, Tensor):
            continue  # a module's extra state
        name = WRAPPERS.sub("", key)
        if ".original_module." in name:
            continue  # peft's copy of a module that is trained as a whole
        if ADAPTER.search(name):
            if adapters is None:
                raise UserError(
                    "is an adapter's", field=name, remedy='say adapters="merged" or "apart", as it is to be sent'
                )
            if adapters == "apart":
                yield PEFT + ADAPTER.sub(r".\1", name.removeprefix(PEFT)), tensor
            continue
        name = name.removeprefix(PEFT).replace(".base_layer.", ".")
        yield re.sub(r"\.modules_to_save\.\w+\.", ".", name), tensor


def _identity(tensor: Tensor) -> object:
    """Equal for two names of one memory. A shard of no element has none, but its tensor is then the same object."""
    local = getattr(tensor, "_local_tensor", tensor)
    if local.numel() == 0:
        return id(tensor)
    return local.data_ptr(), tuple(local.shape), local.stride(), tensor.shape


def _is_fsdp2(model: Module) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())


def _local(name: str, tensor: Tensor, by: Maker | None) -> tuple[Tensor, tuple[Piece, ...]]:
    from torch.distributed.tensor import DTensor

    shape = tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        return tensor.detach(), pieces(name, shape, (), (), ())
    local, mesh = tensor.to_local().detach(), tensor.device_mesh
    place = mesh.get_coordinate()
    its = () if place is None else pieces(name, shape, tuple(mesh.shape), place, tensor.placements, by)
    says = sum(piece.box.numel for piece in its)
    if says != local.numel():
        raise UserError(
            f"holds {local.numel()} elements where its placements say {says}",
            field=name, value=tuple(map(str, tensor.placements)),
        )  # fmt: skip
    return local, its


def _unstacked(
    spec: TensorSpec, its: tuple[Piece, ...], local: Tensor, rule: Stacked
) -> Iterator[tuple[TensorSpec, tuple[Piece, ...], Tensor]]:
    if len(spec.shape) != 3 or spec.shape[1] % len(rule.parts):
        raise UserError(
            f"is no stack (experts, rows, columns) whose rows {len(rule.parts)} tensors share",
            field=spec.name, value=spec.shape,
        )  # fmt: skip
    experts, rows, columns = spec.shape[0], spec.shape[1] // len(rule.parts), spec.shape[2]
    for expert in range(experts):
        for number, part in enumerate(rule.parts):
            name = spec.name.removesuffix(rule.suffix) + part.format(expert)
            of_all = Box((expert, number * rows, 0), (expert + 1, (number + 1) * rows, columns))
            found, row = [], 0
            for piece in its:
                if box := piece.box.meet(of_all):
                    where = piece.local(box)
                    inner, row = box.within(of_all), where[0].start
                    found.append(Piece(Box(inner.start[1:], inner.stop[1:]), tuple(s.start for s in where[1:])))
            view = local[row] if found else local
            yield TensorSpec(name, (rows, columns), spec.dtype), tuple(found), view
