"""The ways in which families of models write reasoning and calls, and how a template tells which it is.

`forced` says how calls look that the engine is made to write; the two formats without calls have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from posttrain.errors import UserError
from posttrain.llmm.tokens.parsers import readers
from posttrain.llmm.tokens.parsers.events import Event
from posttrain.llmm.tokens.parsers.forced import Forced
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
    forced: Forced | None = None

    def opens_reasoning(self, prompt_end: str) -> bool:
        """Whether the prompt's end leaves reasoning open, so that the model goes on in it."""
        return any(
            prompt_end.rfind(s.open) > max((prompt_end.rfind(end) for end in s.close), default=-1)
            for s in self.reasoning
        )


_THINK = (Section("reasoning", "<think>", ("</think>",)),)
_TOOL_CALL = ("<tool_call>", ("</tool_call>",))


def _calls(open: str, close: tuple[str, ...], read: object, *, bare: bool = False) -> tuple[Section, ...]:
    return (Section("calls", open, close, read, bare),)  # type: ignore[arg-type]


FORMATS: Mapping[str, Format] = {format.name: format for format in (
    Format("plain"),
    Format("think", (), _THINK),
    Format("hermes", _calls(*_TOOL_CALL, readers.json_object), _THINK, forced=Forced(
        '<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>", separator="\n", never="</tool_call>")),
    Format("xml_function", _calls(*_TOOL_CALL, readers.xml_function), _THINK, forced=Forced(
        "<tool_call>\n<function=%s>\n", "\n</function>\n</tool_call>", separator="\n", style="qwen_xml",
        never="</tool_call>")),
    Format("glm", _calls(*_TOOL_CALL, readers.glm), _THINK, forced=Forced(
        "<tool_call>%s\n", "\n</tool_call>", separator="\n", style="glm_xml", never="</tool_call>")),
    Format("llama3", (*_calls("<|python_tag|>", (), readers.json_object),
                      *_calls("{", (), readers.json_object, bare=True)), forced=Forced(
        '{"name": "%s", "parameters": ', "}", separator=";")),
    Format("pythonic", (*_calls("<|python_tag|>", (), readers.pythonic),
                        *_calls("[", (), readers.pythonic, bare=True)), forced=Forced(
        "%s(", ")", "[", "]", ", ", "python")),
    Format("mistral", _calls("[TOOL_CALLS]", (), readers.mistral),
           (Section("reasoning", "[THINK]", ("[/THINK]",)), *_THINK), forced=Forced(
        '{"name": "%s", "arguments": ', "}", "[TOOL_CALLS][", "]", ", ")),
    Format("deepseek", _calls("<｜tool▁calls▁begin｜>", ("<｜tool▁calls▁end｜>",), readers.deepseek), _THINK,
           forced=Forced(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n", "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "\n", never="<｜tool▁calls▁end｜>")),
    Format("kimi", _calls("<|tool_calls_section_begin|>", ("<|tool_calls_section_end|>",), readers.kimi), _THINK,
           forced=Forced("<|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>", "<|tool_call_end|>",
                         "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                         never="<|tool_call_end|>")),
    Format("lfm2", _calls("<|tool_call_start|>", ("<|tool_call_end|>",), readers.pythonic), _THINK, forced=Forced(
        "%s(", ")", "<|tool_call_start|>[", "]<|tool_call_end|>", ", ", "python")),
    Format("phi4", _calls("<|tool_call|>", ("<|/tool_call|>",), readers.json_list), _THINK, forced=Forced(
        '{"name": "%s", "arguments": ', "}", "<|tool_call|>[", "]<|/tool_call|>", ", ", never="<|/tool_call|>")),
    Format("gemma", _calls("<|tool_call>", ("<tool_call|>",), readers.gemma),
           (Section("reasoning", "<|channel>thought", ("<channel|>",)),), forced=Forced(
        "<|tool_call>call:%s", "<tool_call|>", separator="", style="gemma")),
    Format("cohere", _calls("<|START_ACTION|>", ("<|END_ACTION|>",), readers.json_list),
           (Section("reasoning", "<|START_THINKING|>", ("<|END_THINKING|>",)),
            Section("text", "<|START_RESPONSE|>", ("<|END_RESPONSE|>",))), forced=Forced(
        '{"tool_call_id": "0", "tool_name": "%s", "parameters": ', "}", "<|START_ACTION|>[", "]<|END_ACTION|>",
        never="<|END_ACTION|>")),
    Format("harmony", harmony=True, forced=Forced(
        "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>", "<|call|>", never="<|call|>")),
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
