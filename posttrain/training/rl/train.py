"""An iteration from references to references: what the step `rl` does."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from posttrain.contract import StepContext
from posttrain.contract.digest import digest_file, digest_value
from posttrain.contract.ref import Ref
from posttrain.errors import UserError
from posttrain.timings import Timings
from posttrain.training import determinism
from posttrain.training.checkpoints import CheckpointStore, Saved, read, verify
from posttrain.training.export import export
from posttrain.training.learner import Learner
from posttrain.training.model import choose_device, load_model
from posttrain.training.objectives.build import build
from posttrain.training.rl.config import Reinforcement
from posttrain.training.rl.feed import Feed
from posttrain.training.rl.iteration import Iteration
from posttrain.training.rl.progress import Progress
from posttrain.training.rl.state import ROWS, resume
from posttrain.training.rl.weights import Nowhere, ThroughEtha, Weights
from posttrain.training.strategy import current

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Links:
    """How an iteration reaches the engines. `rollout` empty: it reaches none, and is computed from the lake alone."""

    rollout: str
    coordinator: str
    transport: str
    keep: int
    timeout: float


@dataclass(frozen=True)
class Trained:
    """`rows` names what each update was trained on; groups and samples are counted since the loop began."""

    model: str
    checkpoint: str
    rows: str
    version: int
    reward: float
    groups_trained: int
    groups_dropped: int
    samples_trained: int


def train(
    context: StepContext, config: Reinforcement, *, model: str, checkpoint: str, experience: str, reference: str,
    links: Links,
) -> Trained:  # fmt: skip
    """The updates of one iteration on `model` as it was at `checkpoint` (empty: as it is).

    Raises UserError for what the user has to change, NotFinite, and OSError where the disk is full.
    """
    step, learning = context.step, config.learning
    source = context.locate(model, field=f"{step}.model")
    threads = determinism.fix(seed=context.seed, threads=learning.threads, device=choose_device(learning.device))
    objective, strategy = build(config.objective), current()
    learner = Learner(
        load_model(source, learning, field=f"{step}.model", critic=objective.critic), learning, strategy,
        objective=objective, temperature=config.temperature,
    )  # fmt: skip
    request = digest_value([asdict(config), context.seed, threads, model, checkpoint, experience, reference])
    store = CheckpointStore(context.checkpoints, learning.checkpoint, request=request)
    live = bool(links.rollout)
    lake = context.workspace / "lake" / context.run
    weights: Weights = Nowhere()
    try:
        before = _before(context, checkpoint)
        last = config.updates + (before.state["version"] if before else 0)
        state = resume(context, store, learner, before)
        uri = Ref.parse(experience, field=f"{step}.experience").locate(context.workspace)
        feed = Feed(uri, state.place, live=live)
        if live and not config.measure_only:
            weights = ThroughEtha(
                learner.model, rollout=links.rollout, coordinator=links.coordinator, transport=links.transport,
                keep=links.keep, version=state.version, timeout=links.timeout,
            )  # fmt: skip
        with Timings(str(lake / "timings.lance"), "trainer", name=step) as timings:
            saved = Iteration(
                context, learner, strategy, config, feed=feed, first=state, last=last, weights=weights, timings=timings,
                progress=Progress(str(lake / "progress.lance")) if live else None, store=store,
                reference=_reference(context, config, reference),
            ).run()  # fmt: skip
    finally:
        weights.close()
        store.close()
    target = context.directory / "model"
    digest = export(learner.model, source, target, dtype=learning.export_dtype)
    rows = context.directory / ROWS
    return Trained(
        model=str(Ref(context.relative(target), digest=digest)),
        checkpoint=str(Ref(context.relative(saved.path), digest=saved.digest)),
        rows=str(Ref(context.relative(rows), digest=digest_file(rows))),
        version=state.version,
        reward=state.reward,
        groups_trained=state.trained,
        groups_dropped=state.dropped,
        samples_trained=state.samples,
    )


def _before(context: StepContext, checkpoint: str) -> Saved | None:
    """The checkpoint that the iteration begins with. Raises UserError where it is damaged, or another one."""
    if not checkpoint:
        return None
    field = f"{context.step}.checkpoint"
    path: Path = context.locate(checkpoint, field=field)
    saved = read(path)
    verify(saved)
    if (wanted := Ref.parse(checkpoint, field=field).digest) and wanted != saved.digest:
        raise UserError("is another checkpoint than the one that is named", field=field, value=checkpoint)
    return saved


def _reference(context: StepContext, config: Reinforcement, reference: str) -> Learner | None:
    """The model that leaving is measured from, where the objective asks for one."""
    if not config.objective.kl.coefficient:
        return None
    field = f"{context.step}.reference"
    if not reference:
        remedy = "give a model as reference, or set objective.kl.coefficient to 0"
        raise UserError("is needed for the KL price", field=field, remedy=remedy)
    path = context.locate(reference, field=field)
    model = load_model(path, config.learning, field=field)
    return Learner(model, config.learning, current(), temperature=config.temperature)
