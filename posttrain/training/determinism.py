"""What has to be fixed so that the same training gives the same bits."""

from __future__ import annotations

import os

import torch


def fix(*, seed: int, threads: int, device: torch.device) -> int:
    """Seed every generator and, on a CPU, hold the kernels to one order of summing. Gives the threads used.

    Sums depend on how many threads share them, so the number is part of what determines the result. On a GPU
    deterministic kernels cost speed and are not asked for.
    """
    torch.manual_seed(seed)
    threads = threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(device.type == "cpu")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs each allocation
    return threads
