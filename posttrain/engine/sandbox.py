"""What bubblewrap says of the container that it makes, read from its status descriptor as it comes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager


class Sandbox:
    """`options` are bubblewrap's. `first` is the container's pid 1, by its pid here, 0 where it failed before that;
    `made` says, once it has ended, whether its command was reached."""

    def __init__(self, options: list[str]):
        loop = asyncio.get_running_loop()
        self.options = options
        self.first: asyncio.Future[int] = loop.create_future()
        self.made: asyncio.Future[bool] = loop.create_future()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)
        self._text = b""
        loop.add_reader(self._reader, self._read)

    @contextmanager
    def reporting(self) -> Iterator[int]:
        """The descriptor to start bubblewrap with; ours is closed once the child has its own."""
        try:
            yield self._writer
        finally:
            os.close(self._writer)

    def _read(self) -> None:
        data = os.read(self._reader, 4096)
        self._text += data
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "child-pid" in said and not self.first.done():
                self.first.set_result(said["child-pid"])
            if "exit-code" in said:
                self.made.set_result(True)
        if not data:
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            if not self.first.done():
                self.first.set_result(0)
            if not self.made.done():
                self.made.set_result(False)
