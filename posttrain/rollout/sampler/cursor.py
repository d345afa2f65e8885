"""Which groups are in the stream already, as a producer's cursor: a text that grows with every group. Pure.

Groups are numbered as they begin and end in any order. The cursor says below which number all are in, and which
beyond it: so after a crash what was under way begins again under its own number, and nothing leaves twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Left:
    """Groups that have left."""

    below: int = 0
    beyond: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        return self.below + len(self.beyond)

    def add(self, number: int) -> None:
        assert number not in self, number
        self.beyond.add(number)
        while self.below in self.beyond:
            self.beyond.remove(self.below)
            self.below += 1

    def __contains__(self, number: int) -> bool:
        return number < self.below or number in self.beyond

    def to_cursor(self) -> str:
        return f"{self.count:012d}|{self.below}|{','.join(map(str, sorted(self.beyond)))}"

    @classmethod
    def from_cursor(cls, cursor: object) -> Left:
        if not isinstance(cursor, str):
            return cls()
        _, below, beyond = cursor.split("|")
        return cls(int(below), {int(number) for number in beyond.split(",") if number})
