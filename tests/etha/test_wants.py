"""Inference ranks want exactly what they load, and become what a checkpoint makes of them: over vLLM's own classes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.etha import laws, ranks
from tests.etha.families import FAMILIES

pytestmark = pytest.mark.xdist_group("etha-vllm")  # vLLM is imported once, in a process beside these tests
QUICK = ("llama", "qwen2", "qwen3_moe", "deepseek_v3", "gpt_oss")
CASES = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in FAMILIES]


@pytest.fixture(scope="module")
def vllm():
    with ranks.alone() as pool:
        yield pool


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.mark.parametrize("family", CASES)
def test_a_rank_loads_from_its_boxes_what_it_loads_from_the_checkpoint(
    vllm: ProcessPoolExecutor, family: str, home: Path
) -> None:
    vllm.submit(laws.loads_exactly_its_part, family, FAMILIES[family], home / family).result()


@pytest.mark.parametrize("family", CASES)
def test_a_live_model_becomes_the_one_that_the_new_checkpoint_starts(
    vllm: ProcessPoolExecutor, family: str, home: Path
) -> None:
    vllm.submit(laws.changes_while_it_is_live, family, FAMILIES[family], home / family).result()


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_experts_of_other_ranks_are_not_wanted(vllm: ProcessPoolExecutor, family: str, home: Path) -> None:
    engine = {"enable_expert_parallel": True}
    vllm.submit(laws.loads_exactly_its_part, family, FAMILIES[family], home / family, **engine).result()


@pytest.mark.parametrize("family", ["qwen2", "gpt_oss", "deepseek_v3"])
def test_half_precision_is_rounded_as_from_a_checkpoint(vllm: ProcessPoolExecutor, family: str, home: Path) -> None:
    """Of a float32 checkpoint, on its way instead of in the engine."""
    vllm.submit(laws.changes_while_it_is_live, family, FAMILIES[family], home / family, dtype="bfloat16").result()
