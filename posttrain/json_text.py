"""JSON values that can be stored and come back as they were."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator


def storable(value: Any) -> Any:
    """`value`. Raises ValueError for what is no JSON (NaN, a set) or no text (a lone surrogate)."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as problem:  # UnicodeEncodeError is a ValueError
        raise ValueError(f"cannot be stored: {problem}") from None
    return value


Json = Annotated[Any, AfterValidator(storable)]
