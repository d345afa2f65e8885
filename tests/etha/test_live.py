"""What a model says of itself: FSDP2 over tensor parallelism in real processes, adapters and stacks in this one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from posttrain.errors import UserError
from posttrain.etha.layout import Mesh, Placed, describe, join
from posttrain.etha.live import EXPERTS, layout_of

ROOT = Path(__file__).resolve().parents[2]


def test_a_live_model_and_its_description_agree_on_every_rank(tmp_path: Path) -> None:
    """Each rank has compared its tensors with those before sharding; here their layouts are those on paper."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.etha.live_ranks", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    live = join([pickle.loads((tmp_path / f"{rank}.pickle").read_bytes()) for rank in range(4)])
    mesh = Mesh((2, 2))
    both = (_StridedShard(0, split_factor=2), Shard(0))
    paper = {
        "up.weight": Placed((11, 6), "float32", mesh, both, "fsdp2"),
        "up.bias": Placed((11,), "float32", mesh, both, "fsdp2"),
        "down.weight": Placed((6, 11), "bfloat16", mesh, (Shard(0), Shard(1))),
        "down.bias": Placed((6,), "bfloat16", mesh, (Shard(0), Replicate())),
    }
    # What tensor parallelism does not touch is FSDP's alone, on each of its two lines of the mesh.
    for name, shape in {"embed.weight": (13, 6), "norm.weight": (6,), "norm.bias": (6,)}.items():
        paper[name] = Placed(shape, "float32", mesh, (Shard(0), Replicate()))
    paper["steps"] = Placed((), "int64", mesh, (Replicate(), Replicate()))
    described = describe(paper, 4, {"head.weight": "embed.weight"})
    assert live.specs == described.specs and live.aliases == described.aliases
    for rank in range(4):
        assert live.ranks[rank].tensors == described.ranks[rank].tensors, rank


def tiny() -> nn.Module:
    return AutoModelForCausalLM.from_config(LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    ))  # fmt: skip


def test_tied_weights_are_one_tensor() -> None:
    layout, tensors = layout_of(tiny())
    assert layout.aliases == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "lm_head.weight" not in tensors
    from_state, _ = layout_of(tiny().state_dict())  # whose tensors are not the parameters, but share their memory
    assert from_state == layout


def test_adapters_are_merged_or_apart() -> None:
    """Merged in place, the tensors at hand are the merged ones; apart, adapters are under names of their own."""
    plain, _ = layout_of(tiny())
    adapted = get_peft_model(tiny(), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    with pytest.raises(UserError, match=r"lora_A.*is an adapter's.*merged"):
        layout_of(adapted)
    layout, tensors = layout_of(adapted, adapters="merged")
    assert layout == plain
    name = "model.layers.0.self_attn.q_proj.weight"
    base = tensors[name].clone()
    layer = adapted.base_model.model.model.layers[0].self_attn.q_proj
    update = layer.get_delta_weight("default")
    adapted.merge_adapter()
    assert torch.allclose(tensors[name], base + update) and not torch.equal(tensors[name], base)
    adapted.unmerge_adapter()
    apart, _ = layout_of(adapted, adapters="apart")
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    assert set(apart.specs) - set(plain.specs) == {f"{prefix}.lora_A.weight", f"{prefix}.lora_B.weight"}
    assert apart.specs[f"{prefix}.lora_A.weight"].shape == (2, 16)


def test_wrappers_leave_no_trace_in_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    plain, _ = layout_of(model)
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in model.state_dict().items()}  # by torch.compile
    assert layout_of(compiled)[0] == plain
    model[0] = checkpoint_wrapper(model[0])
    assert "_checkpoint_wrapped_module" in next(name for name, _ in model.named_modules() if "." in name)
    assert layout_of(model)[0] == plain


def experts() -> nn.Module:
    return AutoModelForCausalLM.from_config(Qwen3MoeConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=1, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1,
    ))  # fmt: skip


def test_stacked_experts_are_sent_under_the_checkpoints_names(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = experts()
    model.save_pretrained(tmp_path)
    checkpoint = load_file(tmp_path / "model.safetensors")
    layout, tensors = layout_of(model, stacked=EXPERTS)
    assert set(layout.specs) == set(checkpoint)
    for name, tensor in checkpoint.items():
        (piece,) = layout.ranks[0].tensors[name]
        assert torch.equal(tensors[name][piece.local(piece.box)], tensor), name
    with torch.no_grad():
        model.model.layers[0].mlp.experts.down_proj.fill_(3)
    assert (tensors["model.layers.0.mlp.experts.2.down_proj.weight"] == 3).all()
    with pytest.raises(UserError, match=r"experts.down_proj: is no stack"):
        layout_of({"experts.down_proj": torch.ones(3, 3)}, stacked=EXPERTS)
