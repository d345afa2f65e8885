"""A small model with everything that makes layouts hard, as trainers shard it and inference ranks want it."""

from __future__ import annotations

from collections.abc import Iterator

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from posttrain.etha.layout import Mesh, Placed
from posttrain.etha.slices import Box, Want

VOCABULARY, WIDTH, INNER, EXPERTS, LAYERS = 50, 24, 40, 6, 2
TIED = {"lm_head.weight": "model.embed_tokens.weight"}

# name, shape, dtype, the dimension that tensor parallelism cuts (None: none)
Weight = tuple[str, tuple[int, ...], str, int | None]


def of_layer(block: str) -> Iterator[Weight]:
    for name, rows in (("q", WIDTH), ("k", 8), ("v", 8)):
        yield f"{block}.self_attn.{name}_proj.weight", (rows, WIDTH), "float32", 0
        yield f"{block}.self_attn.{name}_proj.bias", (rows,), "float32", 0
    yield f"{block}.self_attn.o_proj.weight", (WIDTH, WIDTH), "float32", 1
    yield f"{block}.mlp.gate_proj.weight", (INNER, WIDTH), "float32", 0
    yield f"{block}.mlp.up_proj.weight", (INNER, WIDTH), "float32", 0
    yield f"{block}.mlp.down_proj.weight", (WIDTH, INNER), "float32", 1
    yield f"{block}.mlp.gate.weight", (EXPERTS, WIDTH), "float32", None
    yield f"{block}.mlp.gate.e_score_correction_bias", (EXPERTS,), "float64", None
    yield f"{block}.input_layernorm.weight", (WIDTH,), "bfloat16", None


def of_experts(block: str, expert: int) -> Iterator[Weight]:
    for name, shape in (("gate", (16, WIDTH)), ("up", (16, WIDTH)), ("down", (WIDTH, 16))):
        yield f"{block}.mlp.experts.{expert}.{name}_proj.weight", shape, "bfloat16", None


def outside(last: bool) -> Iterator[Weight]:
    if not last:
        yield "model.embed_tokens.weight", (VOCABULARY, WIDTH), "bfloat16", 0
    else:
        yield "model.norm.weight", (WIDTH,), "bfloat16", None
        yield "model.steps", (), "int64", None


def trained(fsdp: int, tp: int, stages: int = 1, replicas: int = 1) -> dict[str, Placed]:
    """HSDP of so many replicas, over FSDP2 over TP, in pipeline stages; experts go round by TP rank."""
    found = {}
    size = replicas * fsdp * tp
    for stage in range(stages):
        first = stage * size
        mesh = Mesh((replicas, fsdp, tp), tuple(range(first, first + size)))
        layers = [f"model.layers.{layer}" for layer in range(LAYERS) if layer * stages // LAYERS == stage]
        weights = [weight for block in layers for weight in of_layer(block)]
        weights += outside(last=False) if stage == 0 else []
        weights += outside(last=True) if stage == stages - 1 else []
        for name, shape, dtype, cut in weights:
            inner = Replicate() if cut is None else Shard(cut)
            outer = Shard(0) if cut != 0 or tp == 1 else _StridedShard(0, split_factor=tp)
            placements = (Replicate(), outer if shape else Replicate(), inner)
            found[name] = Placed(shape, dtype, mesh, placements, "fsdp2")
        for block in layers:
            for expert in range(EXPERTS):
                ranks = tuple(range(first + expert % tp, first + size, tp))
                for name, shape, dtype, _ in of_experts(block, expert):
                    placements = (Replicate(), Shard(0))
                    found[name] = Placed(shape, dtype, Mesh((replicas, fsdp), ranks), placements)
    return found


def served(tp: int, rank: int) -> tuple[Want, ...]:
    """Of rank `rank`: bfloat16 where weights are, a vocabulary padded to 64 rows, experts spread over the ranks."""
    found = []
    weights = [w for layer in range(LAYERS) for w in of_layer(f"model.layers.{layer}")]
    weights += [*outside(False), *outside(True), ("lm_head.weight", (VOCABULARY, WIDTH), "bfloat16", 0)]
    for name, shape, dtype, cut in weights:
        start, stop = [0] * len(shape), list(shape)
        if cut is not None:
            size = (64 if shape[0] == VOCABULARY else shape[cut]) // tp
            start[cut], stop[cut] = min(rank * size, shape[cut]), min((rank + 1) * size, shape[cut])
        if all(a < b for a, b in zip(start, stop, strict=True)):
            format = "bfloat16" if dtype == "float32" and ".gate." not in name else dtype
            found.append(Want(name, Box(tuple(start), tuple(stop)), format))
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            if expert * tp // EXPERTS == rank:
                for name, shape, _, _ in of_experts(f"model.layers.{layer}", expert):
                    found.append(Want(name, Box.whole(shape), "bfloat16"))
    return tuple(found)
