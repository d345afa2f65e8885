"""Four ranks that train with FSDP2 over tensor parallelism: `python -m tests.etha.live_ranks SCRATCH`.

Each compares what it says of itself with the tensors as they were before they were sharded, and writes its layout. They
are forked, so that what takes seconds to import is imported once.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from posttrain.etha.live import layout_of


class Model(nn.Module):
    """Uneven everywhere, with a tied head, biases, a norm that is replicated over TP, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, 6)
        self.up, self.down = nn.Linear(6, 11), nn.Linear(11, 6, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 13, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("table", torch.arange(5.0), persistent=False)


def train(scratch: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{scratch}/meeting", rank=rank, world_size=4)
    torch.manual_seed(0)
    model = Model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    layout, tensors = layout_of(model)
    (held,) = layout.ranks
    assert layout.aliases == {"head.weight": "embed.weight"}
    assert set(layout.specs) == {*before} - {"head.weight"}
    for name, spec in layout.specs.items():
        assert (spec.shape, spec.dtype) == (tuple(before[name].shape), str(before[name].dtype).removeprefix("torch."))
        covered = 0
        for piece in held.tensors.get(name, ()):
            assert torch.equal(tensors[name][piece.local(piece.box)], before[name][piece.box.index()]), name
            covered += piece.box.numel
        assert covered == (tensors[name].numel() if name in tensors else 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    for piece in held.tensors["up.weight"]:
        assert torch.equal(tensors["up.weight"][piece.local(piece.box)], 2 * before["up.weight"][piece.box.index()])
    (scratch / f"{rank}.pickle").write_bytes(pickle.dumps(layout))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=train, args=(Path(sys.argv[1]), rank)) for rank in range(4)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))
