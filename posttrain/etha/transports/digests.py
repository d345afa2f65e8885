"""64 bits for a bucket's bytes: XXH3 in host memory, a sum of products on a GPU, where bytes need not leave it.

Both sides of a transport have the same kind of memory. Neither is meant against an adversary: the control channel's key
is. What they are for is a bucket that was damaged, cut off, or put in another's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import xxhash

if TYPE_CHECKING:
    from posttrain.etha.transports.base import Runs

_PART = 1 << 22  # bytes looked at at once on a GPU, so that no second bucket's worth of memory is needed
_ODD = (0x9E3779B97F4A7C15 - (1 << 64), 0xC2B2AE3D27D4EB4F - (1 << 64))  # as int64; the golden ratio's, and a prime


def digest(memory: torch.Tensor, runs: Runs) -> int:
    """Of the runs of `memory`, one after the other."""
    return device_digest(memory, runs) if memory.is_cuda else host_digest(memory, runs)


def host_digest(memory: torch.Tensor, runs: Runs) -> int:
    view: Any = memory.numpy()
    if len(runs) == 1:
        offset, nbytes = runs[0]
        return xxhash.xxh3_64_intdigest(view[offset : offset + nbytes])
    total = xxhash.xxh3_64()
    for offset, nbytes in runs:
        total.update(view[offset : offset + nbytes])
    return total.intdigest()


def device_digest(memory: torch.Tensor, runs: Runs) -> int:
    """Each byte times an odd number that depends on its place, all added up modulo 2**64."""
    total = torch.zeros((), dtype=torch.int64, device=memory.device)
    at = 0
    for offset, nbytes in runs:
        for low in range(0, nbytes, _PART):
            part = memory[offset + low : offset + min(low + _PART, nbytes)].to(torch.int64)
            place = torch.arange(at, at + len(part), dtype=torch.int64, device=memory.device)
            weight = place * _ODD[0]
            weight ^= weight >> 29
            weight = (weight * _ODD[1]) | 1
            total += ((part + 1) * weight).sum()
            at += len(part)
    return int(total.item()) % (1 << 64)
