"""One self-contained HTML page about a run: what it did, what it gained, from what it was made."""

from posttrain.report.collect import collect
from posttrain.report.page import render

__all__ = ["collect", "render"]
