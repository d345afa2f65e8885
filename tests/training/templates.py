# ruff: noqa: E501 (the templates are in the form in which models carry them)
"""Chat templates of the families that a test has to hold for, written for these tests in each family's format.

Each names what the model has to produce for a message: the text that must be in the loss, no more and no less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Family:
    name: str
    template: str
    specials: tuple[str, ...]
    produced: Callable[[str, bool], str]  # (content, is it the last message?) -> text
    metaspace: bool = False  # spaces as ▁, as SentencePiece does; else byte-level


CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
Be brief.<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

LLAMA3 = """{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>

' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}"""

MISTRAL = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] | trim + eos_token }}{% endif %}{% endfor %}"""

# Thoughts stand before an answer and are taken out of every turn but the last.
QWEN_THINKING = """{% for message in messages %}{% set content = message['content'] %}{{ '<|im_start|>' + message['role'] + '
' }}{% if message['role'] == 'assistant' %}{% set answer = content.split('</think>')[-1].lstrip('\\n') %}{% if loop.last %}{% set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') if '</think>' in content else '' %}{{ '<think>
' + thought + '
</think>

' + answer }}{% else %}{{ answer }}{% endif %}{% else %}{{ content }}{% endif %}{{ '<|im_end|>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

GEMMA = """{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model
' }}{% endif %}"""

TAGGED = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '
' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""


def _thinking(content: str, last: bool) -> str:
    answer = content.split("</think>")[-1].lstrip("\n")
    if not last:
        return answer + "<|im_end|>"
    thought = content.split("</think>")[0].split("<think>")[-1].strip("\n") if "</think>" in content else ""
    return f"<think>\n{thought}\n</think>\n\n{answer}<|im_end|>"


FAMILIES = [
    Family("chatml", CHATML, ("<|im_start|>", "<|im_end|>"), lambda text, last: text + "<|im_end|>"),
    Family("llama3", LLAMA3, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
           lambda text, last: text.strip() + "<|eot_id|>"),
    Family("mistral", MISTRAL, ("<s>", "</s>", "[INST]", "[/INST]"), lambda text, last: " " + text.strip() + "</s>",
           metaspace=True),
    Family("qwen-thinking", QWEN_THINKING, ("<|im_start|>", "<|im_end|>"), _thinking),
    Family("gemma", GEMMA, ("<bos>", "<start_of_turn>", "<end_of_turn>"), lambda text, last: text.strip() + "<end_of_turn>",
           metaspace=True),
    Family("tagged", TAGGED, ("<|im_start|>", "<|im_end|>"), lambda text, last: text + "<|im_end|>"),
]  # fmt: skip

TEXT = [
    "The answer is <answer>12</answer>.\n\nAnd so on: 3 + 4 = 7, hello world\n", "user assistant system model\n",
    "def f(x):\n    return x  # done\n\n\n", "Grüße, 你好, done. done\tdone",
]  # fmt: skip


def tokenizer(family: Family) -> PreTrainedTokenizerFast:
    """A tokenizer of the family's kind, with merges learned from a few lines, line breaks among them."""
    inner = Tokenizer(models.BPE(byte_fallback=family.metaspace, unk_token="<unk>" if family.metaspace else None))
    if family.metaspace:
        inner.normalizer = normalizers.Replace(" ", "▁")
        inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", *alphabet], show_progress=False)
    else:
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
        )
    inner.train_from_iterator(TEXT * 4, trainer)
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in family.specials])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=family.specials[0], eos_token=family.specials[-1 if family.name != "mistral" else 1],
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    wrapped.chat_template = family.template
    return wrapped
