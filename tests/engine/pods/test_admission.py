"""Admission: capacity is never exceeded, nobody starves, and what can never run is said with figures."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.engine.admission import (
    GPU,
    Amount,
    admit,
    impossible,
    memory_limits,
    request_of,
    visible_devices,
)
from posttrain.errors import UserError
from posttrain.units import quantity

CAPACITY = Amount(Decimal(4), Decimal(16), 4)
amounts = st.builds(
    Amount, st.integers(0, 8).map(lambda n: Decimal(n) / 2), st.integers(0, 16).map(Decimal), st.integers(0, 4)
)
queues = st.lists(amounts, max_size=8).map(lambda found: [(f"p{i}", a) for i, a in enumerate(found)])


@given(queues)
def test_capacity_is_never_exceeded_and_no_gpu_given_twice(queue) -> None:
    decision = admit(queue, [], CAPACITY)
    started = [amount for id, amount in queue if id in decision.start]
    assert not CAPACITY.lacking(sum(started, Amount()))
    gpus = [g for id, amount in queue if id in decision.start for g in decision.start[id]]
    assert len(set(gpus)) == len(gpus) and set(gpus) <= set(range(4))
    assert all(len(decision.start[id]) == amount.gpu for id, amount in queue if id in decision.start)
    assert set(decision.start) | set(decision.wait) == {id for id, _ in queue}


@given(queues)
def test_everything_that_fits_the_machine_runs_in_the_end_and_the_oldest_is_never_passed(queue) -> None:
    waiting, rounds = list(queue), 0
    while waiting:
        decision = admit(waiting, [], CAPACITY)
        assert waiting[0][0] in decision.start  # the oldest starts on an empty machine
        waiting = [(id, amount) for id, amount in waiting if id not in decision.start]
        rounds += 1
    assert rounds <= len(queue)


@given(st.lists(amounts, min_size=1, max_size=6), amounts)
def test_one_that_waits_is_not_overtaken_for_what_it_waits_for(running, wanted) -> None:
    free = CAPACITY - sum(running, Amount())
    lacking = free.lacking(wanted)
    later = Amount(Decimal("0.5"), Decimal(1), 0)
    decision = admit([("first", wanted), ("later", later)], [(a, ()) for a in running], CAPACITY)
    if set(lacking) & {"cpu", "memory"}:
        assert "later" in decision.wait
    if lacking == [GPU] and not (free - Amount()).lacking(later):
        assert "later" in decision.start  # it needs no GPU, so it holds nobody up


def test_gpus_that_others_hold_are_not_given() -> None:
    decision = admit([("p", Amount(gpu=2))], [(Amount(gpu=2), (0, 2))], CAPACITY)
    assert decision.start == {"p": (1, 3)} and visible_devices((1, 3)) == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert visible_devices(()) == {"CUDA_VISIBLE_DEVICES": ""}


def test_what_can_never_run_is_said_with_the_figures() -> None:
    machine = Amount(Decimal(2), Decimal(8 * 2**30), 0)
    assert impossible(Amount(Decimal("1.5"), Decimal(2**30), 0), machine) == ""
    assert impossible(Amount(Decimal(3), Decimal(64 * 2**30), 8), machine) == (
        "requests 3 cpu, this machine has 2; requests 64.0Gi memory, this machine has 8.0Gi; "
        "requests 8 nvidia.com/gpu, this machine has 0"
    )


def test_requests_of_a_pod() -> None:
    def container(name: str, **resources) -> dict:
        return {"name": name, "resources": resources}

    main = container("main", requests={"cpu": "500m"}, limits={"cpu": 2, "memory": "1Gi", GPU: 1})
    sidecar = container("beside", requests={"memory": "512Mi"})
    init = container("first", requests={"cpu": "3"})
    assert request_of(main, [init], [sidecar]) == Amount(Decimal(3), Decimal(1536 * 2**20), 1)
    assert request_of({"name": "main"}) == Amount()
    assert memory_limits([main, sidecar]) == {"main": 2**30}


@pytest.mark.parametrize("text", ["much", "1Zi", "-1", ""])
def test_a_quantity_that_is_none_is_named(text: str) -> None:
    with pytest.raises(UserError, match=r"main\.resources\.cpu"):
        quantity(text, "main.resources.cpu")
    with pytest.raises(UserError, match=r"nvidia\.com/gpu: is no whole number"):
        request_of({"name": "main", "resources": {"limits": {GPU: "0.5"}}})
