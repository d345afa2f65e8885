"""What a model sampled as reasoning, text and tool calls: whole, or as a stream with the same outcome."""

from posttrain.llmm.tokens.parsers.events import Call, Event, Parsed, ReasoningDelta, TextDelta, gather
from posttrain.llmm.tokens.parsers.formats import FORMATS, Format, detect, parser_for
from posttrain.llmm.tokens.parsers.sections import Parser

__all__ = [
    "FORMATS", "Call", "Event", "Format", "Parsed", "Parser", "ReasoningDelta", "TextDelta", "detect", "gather",
    "parse", "parser_for",
]  # fmt: skip


def parse(text: str, format: Format, *, thinking: bool = False, schemas: dict | None = None) -> Parsed:
    """All of `text` at once; `thinking` where the prompt has opened the reasoning already."""
    parser = parser_for(format, thinking=thinking, schemas=schemas)
    return gather([*parser.feed(text), *parser.finish()])
