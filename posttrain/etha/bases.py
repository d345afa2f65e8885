"""What lazy tensors are views of: a tensor of the checkpoint, or one that is made of views by an operation.

Each base passes on what is needed of it, and reads it, as boxes; in the end they come to `Access`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from posttrain.errors import UserError
from posttrain.etha.layout import merged
from posttrain.etha.slices import Box

if TYPE_CHECKING:
    from posttrain.etha.lazy import LazyTensor


class Refused(UserError):
    """A loader did to a tensor what cannot be followed."""


class Access(Protocol):
    """Who answers for the elements of a checkpoint's tensors."""

    who: str  # in errors: whose loaders these are

    def copied(self, source: LazyTensor, target: torch.Tensor) -> None:
        """`source` is copied into `target`, which holds elements or is on meta."""

    def item(self, source: LazyTensor) -> Any:
        """The one element of `source`."""

    def want(self, name: str, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        """`box` of the tensor `name` is needed, and is converted to each of `dtypes` in turn."""

    def read(self, name: str, box: Box) -> torch.Tensor:
        """The elements of `box`, in its shape."""


@dataclass
class Base:
    """Elements laid out row-major in `shape`, which lazy tensors are views of. `filled` is what a loader has put into
    all of them, as tensor parallelism does with a bias that another rank adds."""

    access: Access
    shape: tuple[int, ...]
    dtype: torch.dtype
    filled: float | None = field(default=None, init=False)

    def need(self, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        raise NotImplementedError

    def read(self, box: Box) -> torch.Tensor:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    def refused(self, what: str) -> Refused:
        return Refused(
            f"Etha cannot follow how {self.access.who} loads {self.name}: {what}",
            remedy="serve this model from checkpoints, or tell us its class and this line",
        )


@dataclass
class Stored(Base):
    """A tensor of the checkpoint."""

    tensor: str

    @property
    def name(self) -> str:
        return self.tensor

    def need(self, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        self.access.want(self.tensor, box, dtypes)

    def read(self, box: Box) -> torch.Tensor:
        return self.access.read(self.tensor, box)


@dataclass
class Copied(Base):
    """A view, laid out anew."""

    view: LazyTensor

    @property
    def name(self) -> str:
        return self.view.base.name

    def need(self, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        self.view[box.index()].need(dtypes)  # type: ignore[attr-defined]

    def read(self, box: Box) -> torch.Tensor:
        return self.view[box.index()].elements()  # type: ignore[attr-defined]


@dataclass
class Computed(Copied):
    """A function of each element by itself. It is computed where the weights are loaded, as from a checkpoint."""

    function: Callable[..., torch.Tensor]
    arguments: tuple[Any, ...]

    def need(self, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        super().need(box, (self.view.dtype,))

    def read(self, box: Box) -> torch.Tensor:
        return self.function(super().read(box).to(self.view.dtype), *self.arguments)


@dataclass
class Joined(Base):
    """Views one after the other along a dimension."""

    dim: int
    parts: tuple[LazyTensor, ...]

    @property
    def name(self) -> str:
        return self.parts[0].base.name

    def _within(self, box: Box) -> Iterable[LazyTensor]:
        at = 0
        for part in self.parts:
            start, stop = (max(0, min(edge[self.dim] - at, part.shape[self.dim])) for edge in box)
            if start < stop:
                index = list(box.index())
                index[self.dim] = slice(start, stop)
                yield part[tuple(index)]  # type: ignore[misc]
            at += part.shape[self.dim]

    def need(self, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        for part in self._within(box):
            part.need((self.dtype, *dtypes))

    def read(self, box: Box) -> torch.Tensor:
        return torch.cat([part.elements().to(self.dtype) for part in self._within(box)], self.dim)


@dataclass
class Picked(Base):
    """The slices `indices` of a view along a dimension, in that order."""

    view: LazyTensor
    dim: int
    indices: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.view.base.name

    def _span(self, box: Box) -> tuple[LazyTensor, list[int]]:
        """The view between the first and the last slice that the box needs, and which of them those are."""
        wanted = self.indices[box.start[self.dim] : box.stop[self.dim]]
        index = list(box.index())
        index[self.dim] = slice(min(wanted), max(wanted) + 1)
        return self.view[tuple(index)], [each - min(wanted) for each in wanted]  # type: ignore[return-value]

    def need(self, box: Box, dtypes: tuple[torch.dtype, ...]) -> None:
        span, picked = self._span(box)
        for start, size in merged((each, 1) for each in sorted(set(picked))):
            span.narrow(self.dim, start, size).need(dtypes)  # type: ignore[attr-defined]

    def read(self, box: Box) -> torch.Tensor:
        span, picked = self._span(box)
        return torch.cat([span.narrow(self.dim, each, 1).elements() for each in picked], self.dim)  # type: ignore[attr-defined]
