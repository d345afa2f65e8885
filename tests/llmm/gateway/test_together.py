"""What is written together: an answer's pieces to a client, the lines of the log."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import Any

from posttrain.llmm.gateway.connection import Gathering
from posttrain.llmm.gateway.telemetry import Gathered


class Written(asyncio.Transport):
    """Notes what it is asked to send."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.sent, self.closed = list[bytes](), False

    def write(self, data: Any) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_pieces_of_one_turn_of_the_loop_are_one_write_and_a_close_sends_what_is_left() -> None:
    async def scenario() -> None:
        transport = Written()
        gathering = Gathering(transport, asyncio.get_running_loop())
        gathering.write(b"head")
        gathering.write(b"body")
        assert transport.sent == []
        await asyncio.sleep(0)
        gathering.write(b"more")
        gathering.close()
        gathering.write(b"too late")
        await asyncio.sleep(0)
        assert transport.sent == [b"headbody", b"more"] and transport.closed
        assert gathering.get_extra_info("peername") == ("127.0.0.1", 1)

    asyncio.run(scenario())


def test_lines_of_the_log_keep_their_order_and_a_warning_does_not_wait() -> None:
    first, second = io.StringIO(), io.StringIO()
    log = logging.Logger("of this test")
    log.addHandler(Gathered(logging.StreamHandler(first), logging.StreamHandler(second)))

    async def scenario() -> None:
        log.info("a")
        log.info("b")
        assert first.getvalue() == ""
        while not first.getvalue():
            await asyncio.sleep(0.01)
        log.info("c")
        log.warning("d")
        assert first.getvalue() == second.getvalue() == "a\nb\nc\nd\n"
        log.info("e")

    asyncio.run(scenario())
    log.info("f")  # no loop runs here: nothing waits for one
    assert first.getvalue() == second.getvalue() == "a\nb\nc\nd\ne\nf\n"
