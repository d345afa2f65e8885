"""The tiny model: the same bytes again, a tokenizer that loses nothing, spans on what the assistant says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from posttrain.contract.digest import digest_tree
from posttrain.errors import UserError
from posttrain.models import tiny, tiny_tokenizer
from posttrain.models.config import TinyShape

TOKENIZER = tiny_tokenizer.build(512)
TALK = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "12 + 7 ="},
    {"role": "assistant", "content": "<answer>19</answer>"},
    {"role": "user", "content": "1 + 1 ="},
    {"role": "assistant", "content": "<answer>2</answer>"},
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny.build(path, TinyShape(), seed=0)
    return path


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(directory, tmp_path):
    torch.rand(3)  # the state of the caller's generator does not matter
    state = torch.random.get_rng_state()
    tiny.build(tmp_path / "again", TinyShape(), seed=0)
    assert torch.equal(torch.random.get_rng_state(), state), "and is left alone"
    tiny.build(tmp_path / "other", TinyShape(), seed=1)
    assert digest_tree(tmp_path / "again") == digest_tree(directory) != digest_tree(tmp_path / "other")


def test_what_transformers_loads_is_what_was_built(directory):
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert (model.config.num_hidden_layers, model.config.hidden_size, model.config.head_dim) == (2, 64, 32)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert len(tokenizer) <= model.config.vocab_size
    assert tokenizer.apply_chat_template(TALK, tokenize=False) == TOKENIZER.apply_chat_template(TALK, tokenize=False)


@given(st.text())
def test_no_text_is_lost(text):
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("12 + 7 =", ["12", "Ġ+", "Ġ", "7", "Ġ="]),
        ("<answer>19</answer>", ["<answer>", "19", "</answer>"]),
        ("<|im_start|>assistant\n", ["<|im_start|>", "assistant", "Ċ"]),
        ("1234", ["12", "34"]),
    ],
)
def test_sums_and_answers_are_few_tokens(text, tokens):
    assert TOKENIZER.convert_ids_to_tokens(TOKENIZER(text)["input_ids"]) == tokens


def test_generation_spans_cover_what_the_assistant_says_and_its_end():
    made = TOKENIZER.apply_chat_template(TALK, return_dict=True, return_assistant_tokens_mask=True)
    spoken = [i for i, mine in zip(made["input_ids"], made["assistant_masks"], strict=True) if mine]
    assert TOKENIZER.decode(spoken) == "<answer>19</answer><|im_end|><answer>2</answer><|im_end|>"


def test_the_prompt_is_a_prefix_of_the_whole_conversation():
    prompt = TOKENIZER.apply_chat_template(TALK[:-1], tokenize=False, add_generation_prompt=True)
    assert TOKENIZER.apply_chat_template(TALK, tokenize=False).startswith(prompt + TALK[-1]["content"])


@pytest.mark.parametrize("shape", [{"head": 16}, {"hidden": 48}, {"layers": 0}])
def test_a_shape_that_cannot_be_served_is_refused(shape):
    with pytest.raises(UserError, match=r"prepare_model\.tiny"):
        TinyShape(**shape)


def test_sums_are_learned_in_seconds(directory):
    """The model can show that training works: most of the sums that it has not seen come out right."""
    tokenizer, model = AutoTokenizer.from_pretrained(directory), AutoModelForCausalLM.from_pretrained(directory)
    sums = [[a, b, c] for a in range(10) for b in range(10) for c in range(10)]
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(sums), generator=generator).tolist()
    texts = [" + ".join(map(str, sums[n])) + f" =<answer>{sum(sums[n])}</answer>" for n in order]
    ids_RT = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")["input_ids"]  # rows, time
    labels_RT = torch.where(ids_RT == tokenizer.pad_token_id, -100, ids_RT)
    labels_RT[:, : (ids_RT[0] == tokenizer.convert_tokens_to_ids("<answer>")).nonzero().item() + 1] = -100
    held, rest = slice(0, 100), torch.arange(100, len(texts))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01, betas=(0.9, 0.95))
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # more are slower on tensors this small
    try:
        for update in range(160):
            for group in optimizer.param_groups:
                group["lr"] = 6e-3 * min(1, (update + 1) / 20) * max(0.05, 1 - update / 160)
            rows = rest[torch.randint(len(rest), (64,), generator=generator)]
            model(input_ids=ids_RT[rows], labels=labels_RT[rows]).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            guess_RT = model(input_ids=ids_RT[held]).logits[:, :-1].argmax(-1)
    finally:
        torch.set_num_threads(before)
    wanted_RT = labels_RT[held, 1:]
    right = ((guess_RT == wanted_RT) | (wanted_RT == -100)).all(1).float().mean().item()
    assert right > 0.5
