"""The one kind of error a user is meant to read.

A `UserError` is printed as one line without a traceback and ends the process with its exit
code. Anything else that escapes is a defect of ours and keeps its traceback.
"""

from __future__ import annotations


class UserError(Exception):
    """What was wrong, where, and what to do about it, in one line.

    `field` is the dotted path of the configuration key, the flag or the file at fault; `value`
    what stood there; `remedy` the way out. Each may be left out where it does not apply.
    """

    exit_code = 2

    def __init__(self, problem: str, *, field: str | None = None, value: object = None, remedy: str | None = None):
        self.problem, self.field, self.value, self.remedy = problem, field, value, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        shown = f" (got {_short(self.value)})" if self.value is not None else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{where}{self.problem}{shown}{remedy}".replace("\n", " ")

    def __reduce__(self):
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(kind: type[UserError], state: dict) -> UserError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    Exception.__init__(error, str(error))
    return error


def _short(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
