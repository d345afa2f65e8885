"""The tokenizer of the tiny model: byte-level BPE whose few merges are written down, not trained.

Invariants: any text can be encoded and decoded without loss; the vocabulary is the same on every
machine; a number up to two digits, an operator with the space before it and a tag of the answer
form are one token each, so that a problem of arithmetic is a dozen tokens.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# ChatML; what the assistant says, with the token that ends it, stands in a generation span.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|im_end|>' -}}
{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

_WORDS = ["system", "user", "assistant", " +", " -", " *", " /", " ="]
_NUMBERS = [f"{n}" for n in range(10, 100)]
_TAGS = ["<answer>", "</answer>"]


def build(context_length: int) -> PreTrainedTokenizerFast:
    """The tokenizer, with its chat template; pads and ends with `<|im_end|>` as ChatML models do."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for word in [*_WORDS, *_NUMBERS]:
        _merge(_as_symbols(word), vocabulary, merges)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (END_OF_TEXT, START, END)])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _TAGS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, bos_token=START, unk_token=END_OF_TEXT,
        model_max_length=context_length, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _as_symbols(word: str) -> list[str]:
    """The word in the byte-level alphabet, where a space is written Ġ."""
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word)
    return list("".join(text for text, _ in pieces))


def _merge(symbols: list[str], vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
    """Add the merges that build the word from left to right."""
    left = symbols[0]
    for right in symbols[1:]:
        if (left, right) not in merges:
            merges.append((left, right))
            vocabulary[left + right] = len(vocabulary)
        left += right
