"""The inference side of one rank: takes the bytes of new versions in the background, and has them ready for the engine.

    specs = source_specs(coordinator)                       # waits for a publisher; names, shapes, dtypes, aliases
    receiver = Receiver(coordinator, replica="a", rank=0, ranks=2, wants=learn(model, specs.specs), url="http://…")
    receiver.start()                                        # registers, then heartbeats and receives in threads
    …
    with receiver.applying(7) as tensors:                   # when the coordinator has the engine update to version 7
        load(model, specs, tensors)                         # Mapping[Want, Tensor], views of the staging memory

Invariants: `applying` gives a version only after every rank of the replica holds all of it, byte by byte as its sources
sent it; what it gives stays as it is until it is left; a rank whose `applying` did not end well says that its engine holds no version,
so that its replica takes no traffic until a push went through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from posttrain.etha.layout import SourceLayout
from posttrain.etha.slices import Want
from posttrain.etha.transports.base import Transport

if TYPE_CHECKING:
    from torch import Tensor


def source_specs(coordinator: str, *, wait: float = 600.0) -> SourceLayout:
    """What the publishers hold (`specs` and `aliases`; no ranks), once all of their ranks have said so.

    Raises UserError where nobody has within `wait` seconds.
    """
    raise NotImplementedError


class Receiver:
    """One rank of a replica. `version` is what the engine holds at the start; 0 stands for "as it was started".

    `url` is the engine's HTTP address (vLLM's with VLLM_SERVER_DEV_MODE=1), which the coordinator drives: pause,
    start_weight_update, update_weights({"version": v}), finish_weight_update(str(v)), reset of caches, resume. Without
    `url` there is no engine to drive, and `apply(version, tensors)` is called in a thread of the receiver instead.
    """

    def __init__(
        self, coordinator: str, *, replica: str, rank: int, ranks: int, wants: Sequence[Want], url: str = "",
        apply: Callable[[int, Mapping[Want, Tensor]], None] | None = None, version: int = 0,
        transport: str | Transport = "shm", host: str = "127.0.0.1",
    ):  # fmt: skip
        raise NotImplementedError

    def start(self) -> None:
        """Register. Raises UserError where the coordinator refuses, as for a rank of another number of ranks."""
        raise NotImplementedError

    def staged(self, version: int) -> Mapping[Want, Tensor]:
        """The whole of `version`, one tensor per want in the shape of its box, as views (float32 values for formats
        with scales). Raises UserError where this rank does not hold it."""
        raise NotImplementedError

    @contextmanager
    def applying(self, version: int) -> Iterator[Mapping[Want, Tensor]]:
        """`staged(version)`; the engine holds no version within, and `version` once this is left without an error."""
        raise NotImplementedError
        yield

    def close(self) -> None:
        """Leave: the replica takes no traffic any more. Staged tensors stay valid while they are held."""
        raise NotImplementedError
