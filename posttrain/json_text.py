"""JSON that our services take: values that can be stored and come back as they were, bodies that are what they say."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict


def storable(value: Any) -> Any:
    """`value`. Raises ValueError for what is no JSON (NaN, a set) or no text (a lone surrogate)."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as problem:  # UnicodeEncodeError is a ValueError
        raise ValueError(f"cannot be stored: {problem}") from None
    return value


LARGEST_WHOLE = 2**53 - 1  # up to which every reader of JSON has the same number
Json = Annotated[Any, AfterValidator(storable)]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]  # JSON has one kind of number, and 3.0 is a whole one


class Body(BaseModel):
    """A request's body. A key that there is not, and a value of another type (`true` for a number), is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)
