"""What can go wrong with a stream, in the words of its users. Each is one line with a way out."""

from __future__ import annotations

import re
from typing import Any

from posttrain.errors import UserError


class StreamError(UserError):
    """Any refusal or failure of a stream."""


class StreamNotFound(StreamError):
    """There is no stream under the URI."""


class StreamClosed(StreamError):
    """The barrier has been committed: nothing is appended and nobody registers any more."""


class ProducerFenced(StreamError):
    """Another holder registered under the same name later. This one must stop.

    `epoch` is the newer holder's. `landed` says whether the append that met the fence is in the table: it may
    have landed just before. None where that is not known any more, after very many holders: then only the
    cursor that the newest one found tells.
    """

    def __init__(self, name: str, mine: int, epoch: int, *, landed: bool | None):
        self.name, self.mine, self.epoch, self.landed = name, mine, epoch, landed
        super().__init__(
            f"producer {name!r} of epoch {mine} was replaced by epoch {epoch}",
            remedy="stop this one; the newer holder goes on from the cursor in the table",
        )


class ConsumerFenced(StreamError):
    """The group was given another count after this consumer was made."""


class OffsetRemoved(StreamError):
    """Rows at and after the offset were removed or archived by retention."""


class AdmissionTimeout(StreamError):
    """The consumers did not catch up in time. Nothing was written; the same append may be tried again."""


class StoreUnavailable(StreamError):
    """The store did not answer in time, or refused for good.

    After a failed append its outcome is unknown: register again, or keep this producer and append the
    same cursor again once the store is back; what had landed is recognised.
    """

    def __init__(self, problem: str, *, uri: str, cause: object):
        super().__init__(f"{problem}: {_brief(cause)}", field=uri, remedy="see that the store answers, then try again")


class StreamDamaged(StreamError):
    """The table breaks an invariant that every writer of a stream keeps."""


class BadRow(StreamError):
    """One row among many does not fit the stream's schema. `index` counts from 0."""

    def __init__(self, index: int, what: str, *, column: str | None = None, value: Any = None):
        self.index, self.what, self.column = index, what, column
        where = f"row {index}" + (f", column {column!r}" if column else "")
        super().__init__(f"{where}: {what}", value=value)

    def counted_from(self, first: int) -> BadRow:
        """The same of rows that come after `first` others."""
        return BadRow(first + self.index, self.what, column=self.column, value=self.value)


def said(problem: object) -> str:
    """What Lance says, without its kind of error and the place in its source."""
    return re.sub(r"^(Invalid user input|LanceError\(\w+\)): |, /\S+\.rs:\d+:\d+$", "", str(problem))


def _brief(cause: object, limit: int = 300) -> str:
    text = " ".join(said(cause).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
