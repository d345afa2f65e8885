"""A checkpoint as a publisher, and what the command line makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from posttrain.cli import app
from posttrain.errors import UserError
from posttrain.etha import checkpoint
from posttrain.etha.receiver import Receiver
from posttrain.etha.slices import Box, Want
from tests.etha.worlds import World

SHAPES = {"model.embed_tokens.weight": (64, 16), "model.layers.0.mlp.weight": (48, 16), "model.norm.weight": (16,)}
WANTS = (
    Want("lm_head.weight", Box((0, 0), (32, 16)), "bfloat16"),
    Want("model.layers.0.mlp.weight", Box((16, 0), (48, 16)), "float32"),
    Want("model.norm.weight", Box((0,), (16,)), "bfloat16"),
)


def write(directory: Path, seed: int) -> Path:
    """Two files, and an output layer that is tied to the embedding."""
    directory.mkdir(exist_ok=True)
    draw = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=draw).bfloat16() for name, shape in SHAPES.items()}
    names = list(tensors)
    for number, part in enumerate((names[:1], names[1:])):
        save_file({name: tensors[name] for name in part}, directory / f"model-{number}.safetensors")
    (directory / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    return directory


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, {}, {}, 0) as made:
        yield made


def command(world: World, *arguments: str) -> tuple[int, str]:
    """Exit code and what was said."""
    done = CliRunner().invoke(app, ["etha", *arguments], env={"POSTTRAIN_ETHA_URL": world.client.url, "COLUMNS": "120"})
    return done.exit_code, str(done.exception) if isinstance(done.exception, UserError) else done.output


def test_a_checkpoint_is_pushed_and_verified(tmp_path: Path, world: World) -> None:
    one, two = write(tmp_path / "one", 1), write(tmp_path / "two", 2)
    assert "no replica has joined yet" in command(world, "plan")[1]
    receiver = Receiver(world.client.url, replica="a", rank=0, ranks=1, wants=WANTS)
    receiver.start()
    try:
        code, said = command(world, "push", str(one))
        assert code == 0 and "version 1 is served by a after" in said
        held = checkpoint.checkpoint(one).tensors
        with receiver.applying(1) as tensors:
            assert torch.equal(tensors[WANTS[0]], held["model.embed_tokens.weight"][:32])
            assert torch.equal(tensors[WANTS[1]], held["model.layers.0.mlp.weight"][16:].float())
        code, said = command(world, "verify", str(one))
        assert code == 0 and "the same" in said
        code, said = command(world, "verify", str(two))
        assert code == 1 and "DIFFERENT" in said
        assert "is not above version 1" in command(world, "push", str(two), "--version", "1")[1]
        assert command(world, "push", str(two))[0] == 0
        assert command(world, "verify", str(two))[0] == 0
        assert "nobody has version 1 any more" in command(world, "rollback", "1")[1]
        assert "is not on its way" in command(world, "abort", "2")[1]
        said = command(world, "status")[1]
        assert "version to serve: 2" in said and "serving" in said
    finally:
        receiver.close()


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda d: None, "no such directory"),
        (lambda d: d.mkdir(), "holds no safetensors file"),
        (lambda d: (d.mkdir(), (d / "model.safetensors").write_bytes(b"not one"))[0], "cannot be read"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, world: World, break_it, said: str) -> None:
    break_it(tmp_path / "broken")
    code, told = command(world, "push", str(tmp_path / "broken"))
    assert code != 0 and said in told
