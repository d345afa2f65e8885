"""What a vLLM server says of its weights: at WEIGHT_INFO, in development mode, `{"weight_version": LABEL}`."""

from __future__ import annotations

WEIGHT_INFO = "/weight_info"


def version_number(label: str | int) -> int:
    """A trainer labels its weights by their number; the label of an engine that was never updated is none: 0."""
    return int(label) if str(label).isdecimal() else 0
