"""Cuts the two streams of a session into what belongs to each call. No processes here: pieces in, replies out.

A call's part of stdout ends with `\\n WORD STATUS \\n`, its part of stderr with `\\n WORD \\n`.
"""

from __future__ import annotations

import asyncio
import re

from posttrain.sandbox.protocol import Stream


class Collected:
    """One call's output, `limit` bytes of each stream at most. `ended` is its status."""

    def __init__(self, word: str, limit: int):
        loop = asyncio.get_running_loop()
        self.word, self.limit = word, limit
        self.ended: asyncio.Future[int] = loop.create_future()
        self.flooded: asyncio.Future[None] = loop.create_future()
        self.parts: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.missing: set[Stream] = {"stdout", "stderr"}
        self.status: int | None = None

    def text(self, stream: Stream) -> str:
        return bytes(self.parts[stream][: self.limit]).decode(errors="replace")


class Replies:
    """`closed` is done when the interpreter has gone."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call: Collected | None = None
        self._tail: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}

    def expect(self, word: str, limit: int) -> Collected:
        self._call = Collected(word, limit)
        self._tail = {"stdout": b"", "stderr": b""}
        return self._call

    def feed(self, stream: Stream, piece: bytes) -> None:
        call = self._call
        if call is None or stream not in call.missing:
            return  # from what a call that has ended left running
        text = self._tail[stream] + piece
        status = rb" (\d+)" if stream == "stdout" else b""
        match = re.search(rb"\n" + call.word.encode() + status + rb"\n", text)
        if match is None:
            keep = len(call.word) + 16  # the end of it may be the beginning of the mark
            self._keep(call, stream, text[:-keep])
            self._tail[stream] = text[-keep:]
            return
        self._keep(call, stream, text[: match.start()])
        if stream == "stdout":
            call.status = int(match[1])
        call.missing.discard(stream)
        if not call.missing and not call.ended.done():
            assert call.status is not None
            call.ended.set_result(call.status)

    def close(self) -> None:
        """The interpreter has gone; what came without an end belongs to the call that was running."""
        if self._call is not None:
            for stream in self._call.missing:
                self._keep(self._call, stream, self._tail[stream])
        if not self.closed.done():
            self.closed.set_result(None)

    def _keep(self, call: Collected, stream: Stream, text: bytes) -> None:
        kept = call.parts[stream]
        room = call.limit - len(kept)
        kept += text[: max(room, 0)]
        if len(text) > room and not call.flooded.done():
            call.flooded.set_result(None)
