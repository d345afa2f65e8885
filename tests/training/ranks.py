"""One rank of two that share updates over gloo: `python -m tests.training.ranks WORKSPACE SCRATCH RANK`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed as dist

from posttrain.training.batch import build_row
from posttrain.training.packing import pack
from posttrain.training.strategy import current
from tests.training.support import Workspace
from tests.training.test_learner import ODD, corpus, learner, reinforced


def main(workspace: Path, scratch: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{scratch}/meeting", rank=rank, world_size=2)
    here = Workspace(workspace, "", "", "")
    documents = corpus(here, scratch / str(rank)).documents
    strategy = current()
    made = learner(here, strategy=strategy)
    packed = pack([len(d) for d in documents], range(len(documents)), capacity=ODD)
    rows = [build_row([documents[d] for d in row]) for row in strategy.share(packed)]
    tokens = sum(d.loss_tokens for d in documents)
    losses = [made.update(rows, number=n, loss_tokens=tokens, sequences=24, learning_rate=1e-3)[:2] for n in range(3)]
    print(json.dumps([losses, made.evaluate(rows, loss_tokens=tokens), reinforced(here, documents, strategy)]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
