"""The ways in which families of models write reasoning and calls, and how a template tells which it is.

A format's `tag` holds what stands before and after a call's JSON arguments, `%s` being the tool's name: with it a
call can be forced upon the engine. Formats without one write arguments in a way that a JSON grammar cannot force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from posttrain.errors import UserError
from posttrain.llmm.tokens.parsers import readers
from posttrain.llmm.tokens.parsers.events import Event
from posttrain.llmm.tokens.parsers.harmony import HarmonyParser
from posttrain.llmm.tokens.parsers.sections import Parser, Schemas, Section


class AnyParser(Protocol):
    def feed(self, piece: str) -> list[Event]: ...
    def finish(self) -> list[Event]: ...


@dataclass(frozen=True)
class Format:
    name: str
    calls: tuple[Section, ...] = ()
    reasoning: tuple[Section, ...] = ()
    harmony: bool = False
    tag: tuple[str, str] | None = None
    separator: str = "\n"  # between forced calls

    def opens_reasoning(self, prompt_end: str) -> bool:
        """Whether the prompt's end leaves reasoning open, so that the model goes on in it."""
        return any(
            prompt_end.rfind(s.open) > max((prompt_end.rfind(end) for end in s.close), default=-1)
            for s in self.reasoning
        )


_THINK = (Section("reasoning", "<think>", ("</think>",)),)
_TOOL_CALL = ("<tool_call>", ("</tool_call>",))
_HERMES_TAG = ('<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>")


def _calls(open: str, close: tuple[str, ...], read: object, *, bare: bool = False) -> tuple[Section, ...]:
    return (Section("calls", open, close, read, bare),)  # type: ignore[arg-type]


FORMATS: Mapping[str, Format] = {format.name: format for format in (
    Format("plain"),
    Format("think", (), _THINK),
    Format("hermes", _calls(*_TOOL_CALL, readers.json_object), _THINK, tag=_HERMES_TAG),
    Format("xml_function", _calls(*_TOOL_CALL, readers.xml_function), _THINK),
    Format("glm", _calls(*_TOOL_CALL, readers.glm), _THINK),
    Format("llama3", (*_calls("<|python_tag|>", (), readers.json_object),
                      *_calls("{", (), readers.json_object, bare=True)),
           tag=('{"name": "%s", "parameters": ', "}"), separator=";"),
    Format("pythonic", (*_calls("<|python_tag|>", (), readers.pythonic),
                        *_calls("[", (), readers.pythonic, bare=True))),
    Format("mistral", _calls("[TOOL_CALLS]", (), readers.mistral),
           (Section("reasoning", "[THINK]", ("[/THINK]",)), *_THINK),
           tag=('[TOOL_CALLS][{"name": "%s", "arguments": ', "}]"), separator=""),
    Format("deepseek", _calls("<｜tool▁calls▁begin｜>", ("<｜tool▁calls▁end｜>",), readers.deepseek), _THINK,
           tag=("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n",
                "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>")),
    Format("kimi", _calls("<|tool_calls_section_begin|>", ("<|tool_calls_section_end|>",), readers.kimi), _THINK),
    Format("lfm2", _calls("<|tool_call_start|>", ("<|tool_call_end|>",), readers.pythonic), _THINK),
    Format("phi4", _calls("<|tool_call|>", ("<|/tool_call|>",), readers.json_list), _THINK,
           tag=('<|tool_call|>[{"name": "%s", "arguments": ', "}]<|/tool_call|>")),
    Format("gemma", _calls("<|tool_call>", ("<tool_call|>",), readers.gemma),
           (Section("reasoning", "<|channel>thought", ("<channel|>",)),)),
    Format("cohere", _calls("<|START_ACTION|>", ("<|END_ACTION|>",), readers.json_list),
           (Section("reasoning", "<|START_THINKING|>", ("<|END_THINKING|>",)),
            Section("text", "<|START_RESPONSE|>", ("<|END_RESPONSE|>",)))),
    Format("harmony", harmony=True,
           tag=("<|channel|>commentary to=functions.%s <|constrain|>json<|message|>", "<|call|>")),
)}  # fmt: skip

# What a template writes around calls tells its family; the first that it holds counts.
_TELLTALE = {
    "<|channel|>analysis": "harmony", "<｜tool▁calls▁begin｜>": "deepseek", "<|tool_calls_section_begin|>": "kimi",
    "[TOOL_CALLS]": "mistral", "<arg_key>": "glm", "<function=": "xml_function", "<|tool_call_start|>": "lfm2",
    "<|tool_call>call:": "gemma", "<|START_ACTION|>": "cohere", "<|END_RESPONSE|>": "cohere", "<tool_call>": "hermes",
    "<|tool_call|>": "phi4", "<|python_start|>": "pythonic", "<|eom_id|>": "llama3", '"parameters": ': "llama3",
    "</think>": "think",
}  # fmt: skip


def detect(template: str) -> Format:
    """The format of the models that this chat template is for; "plain" where it tells of none."""
    return FORMATS[next((name for mark, name in _TELLTALE.items() if mark in template), "plain")]


def named(name: str, *, field: str = "format") -> Format:
    """The format of that name. Raises UserError."""
    if name not in FORMATS:
        raise UserError("is no format of answers", field=field, value=name, remedy=f"known: {', '.join(FORMATS)}")
    return FORMATS[name]


def parser_for(
    format: Format, *, thinking: bool = False, tools: bool = True, schemas: Schemas | None = None
) -> AnyParser:
    """A parser for one answer. `thinking`: the prompt has opened the reasoning; `tools` False: calls stay text."""
    if format.harmony:
        return HarmonyParser()
    sections = (*format.reasoning, *(format.calls if tools else ()))
    return Parser(sections, start=format.reasoning[0] if thinking and format.reasoning else None, schemas=schemas)
