# ruff: noqa: E501 (the templates are in the form in which models carry them)
"""Families of models: their chat templates with a tokenizer of their special tokens.

Most templates are the models' own, as the wheel of TRL carries them for comparison; ChatML, Mistral and Phi-4-mini
are written down here in the form that their documentation gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from posttrain.llmm.tokens.codec import Codec
from posttrain.llmm.tokens.model import ChatModel
from posttrain.llmm.tokens.parsers import detect
from posttrain.llmm.tokens.template import ChatTemplate

CHATML = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

MISTRAL = """{{ bos_token }}{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content -%}{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{%- for message in rest -%}
{%- if message.role == 'user' %}{{- '[INST]' + ((system + '\n\n') if system is defined and loop.first else '') + message.content + '[/INST]' }}
{%- elif message.role == 'tool' %}{{- '[TOOL_RESULTS]{"content": ' + (message.content | tojson) + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- elif message.tool_calls %}{{- message.content + '[TOOL_CALLS][' }}{%- for call in message.tool_calls %}{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + ', "id": "' + call.id + '"}' }}{{- ', ' if not loop.last else '' }}{%- endfor %}{{- ']' + eos_token }}
{%- else %}{{- message.content + eos_token }}{%- endif %}
{%- endfor %}"""

PHI4_MINI = """{% for message in messages %}{% if message['role'] == 'system' and tools %}{{ '<|system|>' + message['content'] + '<|tool|>' + (tools | tojson) + '<|/tool|><|end|>' }}{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] }}{% if message.tool_calls %}{{ '<|tool_call|>[' }}{% for call in message.tool_calls %}{{ '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']<|/tool_call|>' }}{% endif %}{{ '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


@dataclass(frozen=True)
class Family:
    """`bos`, `eos` as the model's tokenizer names them. `alternates`: takes users and assistants in turn, no tools."""

    name: str
    bos: str
    eos: str
    source: str = ""  # empty: the wheel's
    specials: tuple[str, ...] = ()
    alternates: bool = False
    # Written in another message's round, so that its piece is not its own: the system's in the first user's, say.
    shares: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        return self.source or (_TRL / f"{self.name}.jinja").read_text()


_FOUND = find_spec("trl")
assert _FOUND is not None and _FOUND.origin is not None
_TRL = Path(_FOUND.origin).parent / "chat_templates"

FAMILIES = {family.name: family for family in (
    Family("chatml", "", "<|im_end|>", CHATML),
    Family("llama3", "<|begin_of_text|>", "<|eot_id|>"),
    Family("llama3_1", "<|begin_of_text|>", "<|eot_id|>", shares=("user",)),
    Family("qwen2_5", "", "<|im_end|>", specials=("<|endoftext|>",)),
    Family("qwen3", "", "<|im_end|>", specials=("<|endoftext|>",)),
    Family("qwen3_6", "", "<|im_end|>"),
    Family("mistral", "<s>", "</s>", MISTRAL, ("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
                                               "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"), shares=("system",)),
    Family("gemma3", "<bos>", "<end_of_turn>", specials=("<start_of_turn>", "<end_of_turn>"), alternates=True,
           shares=("system",)),
    Family("gemma4_v5", "<bos>", "<turn|>", specials=("<|turn>", "<turn|>", "<|channel>", "<channel|>")),
    Family("deepseek_r1_distill", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    Family("deepseekv3", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    Family("glm4moe", "", "<|endoftext|>", specials=("<|user|>", "<|observation|>", "[gMASK]", "<sop>")),
    Family("gptoss", "<|startoftext|>", "<|return|>"),
    Family("phi3", "<s>", "<|end|>"),
    Family("phi4_mini", "", "<|end|>", PHI4_MINI),
    Family("cohere2", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", alternates=True, shares=("system",)),
    Family("lfm2", "<|startoftext|>", "<|im_end|>"),
    Family("nemotron_3_nano", "", "<|im_end|>"),
)}  # fmt: skip

_SPECIAL = re.compile(r"<[|｜][^<>\s'\"{]+?[|｜]>")
_TEXT = ["The answer is 12.\n\nAnd so on: 3 + 4 = 7, hello world\n", '{"name": "add", "arguments": {"a": 1}}', "user\n"]


@cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """Byte-level, with a few merges and every special token that the template writes."""
    family = FAMILIES[name]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner.train_from_iterator(
        _TEXT * 4, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    specials = {*_SPECIAL.findall(family.template), *family.specials, family.bos, family.eos} - {""}
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in sorted(specials)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=family.bos or None, eos_token=family.eos, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = family.template
    return wrapped


@cache
def model(name: str) -> ChatModel:
    wrapped = tokenizer(name)
    codec = Codec(wrapped.backend_tokenizer, wrapped.special_tokens_map)
    end = codec.token_id(FAMILIES[name].eos)
    assert end is not None
    source = FAMILIES[name].template
    return ChatModel(codec, ChatTemplate(source, codec.special_tokens), detect(source), frozenset({end}), 4096)
