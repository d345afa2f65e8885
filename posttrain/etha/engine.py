"""vLLM's side: an engine for its weight transfer by the name "etha", which loads what the receiver has staged.

    POST /init_weight_transfer_engine {"init_info": {"coordinator": "http://…", "replica": "a", "url": "http://…"}}

learns what each worker wants and starts its receiver; from then on the coordinator drives the routes by which a version
is applied (`posttrain.etha.coordinator.engines`). Whatever vLLM does to weights at its start, it does again to those
that come: its loaders, its reloading layer by layer, quantisation, and the packing that CPUs want.

Invariants: what is served is either version, never a mix, unless `update_weights` or `finish_weight_update` fails; the
receiver then says that the engine holds no version until a whole one has been applied. Applying may begin anew at any
point, as it does after a coordinator that died in the middle.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from posttrain.etha import reload
from posttrain.etha.layout import SourceLayout
from posttrain.etha.receiver import Receiver, source_specs
from posttrain.etha.wants import learn, load

log = logging.getLogger(__name__)


@dataclass
class EthaInit(WeightTransferInitInfo):
    """`replica` names the engine at the coordinator, `url` is where the coordinator reaches its routes, `host` where
    sources reach its workers, `version` the one it has. Nothing is served while publishers are waited for.
    """

    coordinator: str
    replica: str
    url: str = ""
    host: str = "127.0.0.1"
    version: int = 0
    transport: str = "shm"
    wait: float = 60.0  # seconds for the publishers to say what they hold


@dataclass
class EthaUpdate(WeightTransferUpdateInfo):
    version: int


class EthaEngine(WeightTransferEngine[EthaInit, EthaUpdate]):
    """In each worker, with its part of the model."""

    init_info_cls = EthaInit
    update_info_cls = EthaUpdate
    supports_draft_weight_update = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._source: SourceLayout | None = None
        self._receiver: Receiver | None = None
        self._applying = ExitStack()
        self._begun = False  # a version was loaded, and is not finished yet
        self._whole = True  # the model is of one version

    def init_transfer_engine(self, init_info: EthaInit) -> None:
        """Learn what this worker wants and register it. A second time takes the place of the first."""
        self.shutdown()
        self._source = source_specs(init_info.coordinator, wait=init_info.wait)
        with set_current_vllm_config(self.vllm_config):
            wants = learn(self.model, self._source.specs)
        parallel = self.parallel_config
        receiver = Receiver(
            init_info.coordinator, replica=init_info.replica, wants=wants, url=init_info.url,
            rank=parallel.data_parallel_index * parallel.world_size + parallel.rank,
            ranks=parallel.data_parallel_size * parallel.world_size,
            version=init_info.version if self._whole else None, transport=init_info.transport, host=init_info.host,
        )  # fmt: skip
        receiver.start()
        self._receiver = receiver

    def start_weight_update(self) -> None:
        self._registered()
        self._end(RuntimeError("another update has begun"))
        reload.begin(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: EthaUpdate) -> None:
        """Load the version, which stays staged until the update is finished."""
        receiver, source = self._registered()
        if self._begun:
            self._end(RuntimeError("the version is applied anew"))
            reload.begin(self.model)
        self._begun, self._whole = True, False
        with ExitStack() as applying:
            tensors = applying.enter_context(receiver.applying(update_info.version))
            load(self.model, source.specs, tensors)
            self._applying = applying.pop_all()

    def finish_weight_update(self) -> None:
        try:
            reload.finish(self.model, self.model_config)
        except BaseException as problem:
            self._end(problem)
            raise
        self._whole = self._whole or self._begun
        self._end(None)

    def shutdown(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None

    def _registered(self) -> tuple[Receiver, SourceLayout]:
        if self._receiver is None or self._source is None:
            raise RuntimeError("POST /init_weight_transfer_engine first, with the coordinator's address")
        return self._receiver, self._source

    def _end(self, problem: BaseException | None) -> None:
        """Leave the version that is being applied, if any; with a problem the receiver says that none is held."""
        applying, self._applying, self._begun = self._applying, ExitStack(), False
        applying.__exit__(type(problem) if problem else None, problem, None)
