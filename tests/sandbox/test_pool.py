"""Warm sandboxes: never more than asked, each used once, none left."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.sandbox.pool import WarmPool
from tests.sandbox.conftest import Boxes


def test_the_second_who_asks_does_not_wait(boxes: Boxes) -> None:
    async def work() -> tuple[int, int, set[str]]:
        async with WarmPool(boxes.driver, size=2) as pool:
            used = set()
            for _ in range(5):
                async with pool.sandbox(boxes.spec()) as sandbox:
                    assert (await sandbox.exec(["sh", "-c", "ls; touch used"])).stdout == b""
                    used.add(sandbox.id)
                await pool.prepare(boxes.spec())
            return pool.hits, pool.misses, used

    hits, misses, used = boxes.run(work())
    assert (hits, misses) == (4, 1) and len(used) == 5


def test_no_more_wait_than_are_allowed(boxes: Boxes) -> None:
    async def work() -> list[int]:
        seen = []
        async with WarmPool(boxes.driver, size=2, total=3) as pool:
            for pids in (40, 41, 42, 43, 40):
                await (await pool.take(boxes.spec(pids=pids))).stop()
                seen.append(pool.waiting)
                await pool.prepare(boxes.spec(pids=pids))
                seen.append(pool.waiting)
        return seen

    assert max(boxes.run(work())) <= 3


def test_one_that_was_killed_while_it_waited_is_not_handed_out(boxes: Boxes) -> None:
    async def work() -> None:
        async with WarmPool(boxes.driver, size=1) as pool:
            await pool.prepare(boxes.spec())
            (shelf,) = pool._shelves.values()
            await shelf.warm[0][1].stop()
            async with pool.sandbox(boxes.spec()) as sandbox:
                assert (await sandbox.exec(["true"])).code == 0

    boxes.run(work())


def test_one_that_has_waited_too_long_is_not_handed_out(boxes: Boxes) -> None:
    async def work() -> int:
        async with WarmPool(boxes.driver, size=1) as pool:
            spec = boxes.spec(wall_seconds=1.5)
            await pool.prepare(spec)
            await asyncio.sleep(0.3)
            async with pool.sandbox(spec):
                return pool.misses

    assert boxes.run(work()) == 1


@pytest.mark.parametrize("size", [0, 3])
def test_closing_leaves_nothing(boxes: Boxes, size: int) -> None:
    async def work() -> int:
        pool = WarmPool(boxes.driver, size=size)
        taken = await pool.take(boxes.spec())
        await pool.close()
        await taken.stop()
        return len(boxes.driver._sandboxes)

    assert boxes.run(work()) == 0
