"""What is exported computes what was trained, bit for bit, at every position."""

from __future__ import annotations

import pytest
import torch

from posttrain.training.config import Training
from posttrain.training.model import load_model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_finished_model_and_the_one_that_is_stored_compute_the_same(workspace, tmp_path, dtype):
    finished = load_model(workspace.path / "models" / "tiny", Training(device="cpu", attention="eager")).finish(dtype)
    finished.save_pretrained(tmp_path)
    stored = load_model(tmp_path, Training(device="cpu", attention="eager", dtype="float32")).module
    ids_BT = torch.arange(8, 128)[None]  # far positions: rotary frequencies that were rounded show there
    with torch.no_grad():
        logits_BTV = [m.eval().float()(ids_BT).logits for m in (finished, stored)]
    assert torch.equal(*logits_BTV)
