"""How vLLM comes to know of Etha: its plug-in, and what a server that takes weights from it is started with.

vLLM asks for entry points in every process that it starts. Where posttrain is installed it has one; a checkout has the
same in `entry_points/`, which `variables` puts on the path of those processes and of no other.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "etha"
OPTIONS = {"weight_transfer_config": f'{{"backend": "{NAME}"}}'}
_HERE = Path(__file__).parent


def register() -> None:
    """Called by vLLM, in some processes more than once."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, "posttrain.etha.engine", "EthaEngine")


def variables() -> dict[str, str]:
    """Environment of a server that takes weights from Etha (`OPTIONS` are its options).

    Its weights are changed by routes of vLLM's development mode, which are for trusted networks only.
    """
    path = [str(_HERE / "entry_points"), str(_HERE.parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        "VLLM_PLUGINS": NAME,
        "VLLM_SERVER_DEV_MODE": "1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, path))),
    }
