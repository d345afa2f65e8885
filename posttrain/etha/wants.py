"""What an inference rank needs of a checkpoint, learned from vLLM itself, and how it is loaded from exactly that.

The model's own `load_weights` is run twice: once on tensors that hold nothing, to see what it copies (`learn`), and for
every version on tensors that hold those boxes alone (`load`). So whatever vLLM does to a checkpoint (fusing, splitting
among ranks, padding, stacking experts) is done by vLLM, and there is no table per model here.

Invariants: learning leaves the live model as it was; the boxes of one tensor are disjoint; a loader that reads an
element that was not asked for is an error with the model's class and the tensor's name, not a zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn

from posttrain.errors import UserError
from posttrain.etha.boxes import union
from posttrain.etha.geometry import said
from posttrain.etha.lazy import LazyTensor
from posttrain.etha.slices import Box, Want


class Spec(Protocol):
    """A tensor as the trainer has it: its whole shape, and its dtype by name ("bfloat16")."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


def learn(model: nn.Module, specs: Mapping[str, Spec]) -> tuple[Want, ...]:
    """What this rank's `model` (of vLLM) loads of the tensors `specs`, which go by their Hugging Face names.

    In the format of the parameter, or in the tensor's own where that is enough to make the parameter's of. Sorted by
    name and box. Raises UserError where a loader does what cannot be followed, and where `specs` lacks a tensor.
    """
    access = _Learning(type(model).__name__)
    own = {name for name, _ in model.named_parameters() if name.endswith((".weight", ".bias"))}
    with _as_before_loading(model), torch.no_grad():
        loaded = model.load_weights(_lazy(access, specs))  # type: ignore[operator]
    if loaded is not None and (lacking := sorted(own - set(loaded))):
        raise UserError(
            f"{access.who} has parameters that no tensor of the source is loaded into, {lacking[0]} is one of"
            f" {len(lacking)}", remedy="publish the whole of the model that is served",
        )  # fmt: skip
    return tuple(want for name in sorted(access.wanted) for want in access.wants(name, dtype(specs[name].dtype)))


def load(model: nn.Module, specs: Mapping[str, Spec], staged: Mapping[Want, torch.Tensor]) -> None:
    """Run `model.load_weights` on `staged`, which has the elements of each want in the shape of its box.

    Where the model is live, this comes between reload.py's `begin` and `finish`, and `staged` is read until the latter
    has returned.
    """
    access = _Loading(type(model).__name__, staged)
    with access.watching(model), torch.no_grad():
        model.load_weights(_lazy(access, specs))  # type: ignore[operator]


def dtype(name: str) -> torch.dtype:
    """The dtype of this name. Raises UserError where torch has none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UserError("is no dtype of torch", field="dtype", value=name, remedy="write bfloat16, float32, …")
    return found


class _Learning:
    def __init__(self, who: str):
        self.who = who
        self.wanted: dict[str, list[tuple[tuple[torch.dtype, ...], Box]]] = defaultdict(list)

    def copied(self, source: LazyTensor, target: torch.Tensor) -> None:
        source.need((target.dtype,))

    def item(self, source: LazyTensor) -> Any:
        source.need(())
        return torch.zeros((), dtype=source.dtype).item()  # what it is does not matter: loading runs the loader anew

    def want(self, name: str, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        self.wanted[name].append((dtypes, box))

    def read(self, name: str, box: Box) -> torch.Tensor:
        raise NotImplementedError  # nothing is read while learning

    def wants(self, name: str, stored: torch.dtype) -> list[Want]:
        """The boxes wanted of `name` without overlap, joined where they touch."""
        formats = {_carried(stored, made) for made, _ in dict.fromkeys(self.wanted[name])}
        # Where parameters of several dtypes are made of one tensor, all are made of what the source has.
        sent = formats.pop() if len(formats) == 1 else stored
        if sent.itemsize == 1 and stored.itemsize > 1:
            raise UserError(
                f"{self.who} has {name} in {sent}, with scales of a checkpoint; the source has it in {stored}",
                remedy="serve the model in the dtype that is trained, or let vLLM quantise what it loads",
            )  # fmt: skip
        return [Want(name, box, str(sent).removeprefix("torch.")) for box in union(box for _, box in self.wanted[name])]


class _Loading:
    """Within vLLM's reloading, parameters are on meta until all of their layer has been handed to their loaders, which
    are called once to count and once more, later, to load. A model that copies into a parameter without its loader
    would copy into nothing: its layer gets its memory at once."""

    def __init__(self, who: str, staged: Mapping[Want, torch.Tensor]):
        self.who = who
        self._held: dict[str, list[tuple[Box, torch.Tensor]]] = defaultdict(list)
        for want, tensor in staged.items():
            self._held[want.name].append((want.box, tensor))
        self._inside = 0  # of a parameter's loader
        self._owners: dict[int, tuple[nn.Module, str]] = {}
        self._direct: set[nn.Module] = set()

    def copied(self, source: LazyTensor, target: torch.Tensor) -> None:
        if target.is_meta and self._inside:
            return
        if target.is_meta:
            target = self._with_memory(target)
        target.copy_(source.elements())

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

        loaders = []
        for layer in model.modules():
            for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
                if tensor is None or not tensor.is_meta:
                    continue
                self._owners[tensor.untyped_storage()._cdata] = layer, name
                if (loader := getattr(tensor, "weight_loader", None)) is not None:
                    loaders.append((tensor, loader))
                    tensor.weight_loader = self._noting(loader)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for tensor, loader in loaders:
                tensor.weight_loader = loader  # type: ignore[attr-defined]
        for layer in self._direct:  # nothing was counted for them, and vLLM leaves alone what nothing came for
            if (info := get_layerwise_info(layer)).can_load():
                info.load_numel = max(info.load_numel, 1)

    def _noting(self, loader: Callable[..., Any]) -> Callable[..., Any]:
        def online_process_loader(*arguments: Any, **named: Any) -> Any:  # the name by which vLLM knows its wrappers
            self._inside += 1
            try:
                return loader(*arguments, **named)
            finally:
                self._inside -= 1

        online_process_loader.__wrapped__ = loader  # type: ignore[attr-defined]
        return online_process_loader

    def _with_memory(self, target: torch.Tensor) -> torch.Tensor:
        from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info, materialize_layer

        layer, name = self._owners.get(target.untyped_storage()._cdata, (None, ""))
        if layer is None:
            raise UserError(f"{self.who} copies weights to a place that belongs to no parameter while it is reloaded")
        materialize_layer(layer, get_layerwise_info(layer))
        self._direct.add(layer)
        return getattr(layer, name).as_strided(target.shape, target.stride(), target.storage_offset())

    def item(self, source: LazyTensor) -> Any:
        return source.elements().item()

    def want(self, name: str, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        raise NotImplementedError  # nothing more is asked for while loading

    def read(self, name: str, box: Box) -> torch.Tensor:
        held = self._held[name]
        met = [(part, mine, tensor) for mine, tensor in held if (part := box.meet(mine)) is not None]
        if sum(part.numel for part, _, _ in met) != box.numel:
            raise UserError(
                f"{self.who} loads {name}{said(box)}, of which this rank had not asked for all",
                remedy="its loading depends on something that changed since it was learned: start the engine anew",
            )
        if len(met) == 1:
            _, mine, tensor = met[0]
            return tensor[box.within(mine).index()]
        made = torch.empty(box.shape, dtype=met[0][2].dtype)
        for part, mine, tensor in met:
            made[part.within(box).index()] = tensor[part.within(mine).index()]
        return made


def _lazy(access: _Learning | _Loading, specs: Mapping[str, Spec]) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, LazyTensor.of(access, name, spec.shape, dtype(spec.dtype))) for name, spec in specs.items())


def _carried(stored: torch.dtype, made: tuple[torch.dtype, ...]) -> torch.dtype:
    """What `stored` is sent as, if it is then converted to each of `made` in turn.

    The first conversion of numbers that loses something is the source's to do: that makes fewer bytes, or as many.
    Later ones are done where the weights are loaded, as from a checkpoint, so that nothing is rounded otherwise.
    """
    if not stored.is_floating_point:
        return stored
    return next((kind for kind in made if kind.is_floating_point and not _holds(kind, stored)), stored)


def _holds(kind: torch.dtype, other: torch.dtype) -> bool:
    """Whether every number of `other` is one of `kind`."""
    a, b = torch.finfo(kind), torch.finfo(other)
    return a.eps <= b.eps and a.max >= b.max and a.smallest_normal * a.eps <= b.smallest_normal * b.eps


@contextmanager
def _as_before_loading(model: nn.Module) -> Iterator[None]:
    """Within, the parameters of `model` are as when it was made, on meta; afterwards all of it is as it was.

    vLLM notes that form of every layer when it makes a model (`record_metadata_for_reloading`). What a loader sets on
    a module is undone too.
    """
    from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO, _get_original_loader
    from vllm.model_executor.model_loader.reload.meta import (
        SKIP_MODULES,
        SKIP_TENSORS,
        restore_layer_refs,
        to_meta_tensor,
    )  # fmt: skip

    kept = [(layer, dict(vars(layer)), _containers(layer)) for layer in model.modules()]
    try:
        for layer, _, _ in kept:
            if layer not in LAYERWISE_INFO or type(layer).__name__ in SKIP_MODULES:
                continue
            noted = LAYERWISE_INFO[layer].restore_metadata
            places: tuple[dict[str, Any], dict[str, Any]] = (layer._parameters, layer._buffers)  # type: ignore[assignment]
            for own, before in zip(places, noted, strict=True):
                for name, tensor in list(own.items()):
                    if name not in SKIP_TENSORS:
                        del own[name]
                    elif own is layer._parameters and tensor is not None:
                        own[name] = to_meta_tensor(tensor)
                for name, tensor in before.items():
                    if name in SKIP_TENSORS:
                        continue
                    own[name] = fresh = restore_layer_refs(to_meta_tensor(tensor), layer)
                    if hasattr(fresh, "weight_loader"):  # of a model that was reloaded it counts instead of loading
                        fresh.weight_loader = _get_original_loader(fresh)
        yield
    finally:
        for layer, attributes, containers in kept:
            vars(layer).clear()
            vars(layer).update(attributes)
            for name, content in containers.items():
                held = attributes[name]
                held.clear()
                held.extend(content) if isinstance(held, list) else held.update(content)


def _containers(layer: nn.Module) -> dict[str, Any]:
    return {name: value.copy() for name, value in vars(layer).items() if isinstance(value, dict | set | list)}
