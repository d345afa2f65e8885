"""Which pods may start, given what the machine has. Pure: plain data in, a decision out.

Requests are Kubernetes': cpu, memory and nvidia.com/gpu of a pod's containers, a limit standing in
where no request is given. Pods are admitted in the order in which they came; one that waits holds
back what came after it for the resources that it waits for, so that it is never starved, while pods
that need none of those pass by.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.units import quantity

JSON = dict[str, Any]
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Amount:
    """Cores, bytes, whole GPUs."""

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    gpu: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.cpu - other.cpu, self.memory - other.memory, self.gpu - other.gpu)

    def at_least(self, other: Amount) -> Amount:
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory), max(self.gpu, other.gpu))

    @property
    def figures(self) -> dict[str, Decimal]:
        """By Kubernetes' names."""
        return {"cpu": self.cpu, "memory": self.memory, GPU: Decimal(self.gpu)}

    def lacking(self, wanted: Amount) -> list[str]:
        """The resources of which `wanted` is more than this, each only where some is wanted."""
        return [name for name, want in wanted.figures.items() if want > 0 and want > self.figures[name]]


@dataclass(frozen=True)
class Decision:
    """`start`: ids with the GPU indices that each is given. `wait`: ids with the reason."""

    start: dict[str, tuple[int, ...]] = field(default_factory=dict)
    wait: dict[str, str] = field(default_factory=dict)


def request_of(main: JSON, init: Sequence[JSON] = (), sidecars: Sequence[JSON] = ()) -> Amount:
    """What a pod takes: its main and sidecars together, or its greediest init container if that is more."""
    total = sum((_of_container(c) for c in (main, *sidecars)), Amount())
    for container in init:
        total = total.at_least(_of_container(container))
    return total


def memory_limits(containers: Iterable[JSON]) -> dict[str, int]:
    """The memory limit of each container that has one, in bytes."""
    limits = {c["name"]: ((c.get("resources") or {}).get("limits") or {}).get("memory") for c in containers}
    return {name: int(quantity(text, f"{name}.resources.limits.memory")) for name, text in limits.items() if text}


def impossible(request: Amount, capacity: Amount) -> str:
    """Why the request can never be met on this machine, with the figures; "" where it can."""
    return "; ".join(
        f"requests {_show(name, request.figures[name])} {name}, this machine has {_show(name, capacity.figures[name])}"
        for name in capacity.lacking(request)
    )


def admit(
    waiting: Sequence[tuple[str, Amount]], running: Iterable[tuple[Amount, Sequence[int]]], capacity: Amount
) -> Decision:
    """Who of `waiting` (in the order of arrival) starts now beside `running` (with the GPUs they hold)."""
    free, taken = capacity, set[int]()
    for amount, gpus in running:
        free -= amount
        taken.update(gpus)
    indices = [i for i in range(capacity.gpu) if i not in taken]
    decision = Decision()
    held: set[str] = set()  # resources that somebody earlier waits for
    for id, amount in waiting:
        lacking = free.lacking(amount)
        wanted = {name for name, want in amount.figures.items() if want > 0}
        if lacking or wanted & held:
            held |= set(lacking)
            short = ", ".join(lacking or sorted(wanted & held))
            decision.wait[id] = f"waits for {short}"
            continue
        free -= amount
        decision.start[id], indices = tuple(indices[: amount.gpu]), indices[amount.gpu :]
    return decision


def visible_devices(gpus: Sequence[int]) -> dict[str, str]:
    """The environment that shows a pod its GPUs and no other."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}


def this_machine() -> Amount:
    """Cores that this process may use, the machine's memory, GPUs that the driver shows."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = [p for p in Path("/dev").glob("nvidia*") if p.name.removeprefix("nvidia").isdigit()]
    return Amount(Decimal(len(os.sched_getaffinity(0))), Decimal(memory), len(gpus))


def _of_container(container: JSON) -> Amount:
    resources = container.get("resources") or {}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    where = f"{container.get('name', 'container')}.resources"
    gpu = quantity(given.get(GPU, 0), f"{where}.{GPU}")
    if gpu != int(gpu):
        raise UserError("is no whole number", field=f"{where}.{GPU}", value=given[GPU])
    cpu, memory = (quantity(given.get(name, 0), f"{where}.{name}") for name in ("cpu", "memory"))
    return Amount(cpu, memory, int(gpu))


def _show(name: str, value: Decimal) -> str:
    return f"{float(value) / 2**30:.1f}Gi" if name == "memory" else f"{value.normalize():f}"
