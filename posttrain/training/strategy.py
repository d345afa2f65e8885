"""What is done on one process, and what over several: the seam that parallel training fits into.

A strategy says which rows of an update are this rank's, sums what the ranks computed, and names the ranks. The learner
and the trainer ask it and know nothing of processes. Sharding a model (FSDP2, tensor, pipeline) is a strategy whose
`prepare` returns weights that are sharded; optimiser, clipping and checkpoints take them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from posttrain.training.packing import Row, deal


class Strategy(Protocol):
    rank: int
    world: int

    def share(self, rows: Sequence[Row]) -> list[Row]:
        """This rank's rows; as many on every rank, so that collectives meet."""

    def reduce_gradients(self, weights: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients over the ranks, in place."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of `value` over the ranks."""


class SingleProcess:
    rank, world = 0, 1

    def share(self, rows: Sequence[Row]) -> list[Row]:
        return list(rows)

    def reduce_gradients(self, weights: Iterable[torch.nn.Parameter]) -> None:
        pass

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return value


class DataParallel:
    """The whole model on every rank of the default process group."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def share(self, rows: Sequence[Row]) -> list[Row]:
        return deal(rows, rank=self.rank, world=self.world)

    def reduce_gradients(self, weights: Iterable[torch.nn.Parameter]) -> None:
        for weight in weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            dist.all_reduce(weight.grad)

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total


def current() -> Strategy:
    """The strategy of this process: data-parallel where it was started as one of several."""
    return DataParallel() if dist.is_initialized() and dist.get_world_size() > 1 else SingleProcess()
