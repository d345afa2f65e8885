"""The loop of updates: take groups, choose, learn, give the weights away, tell the sampler.

Invariants: what an update does depends on the checkpoint that the iteration began with, the rows of the stream in
their order, the configuration and the seed, and on nothing else: so an iteration that was killed anywhere, or is
computed again from the lake, makes the same weights, bit for bit on a CPU. Each group is trained on or dropped once; a
sample that is not trained on is counted under a reason.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from posttrain.contract import StepContext
from posttrain.timings import Timings
from posttrain.training.batch import build_row
from posttrain.training.chat import Document
from posttrain.training.checkpoints import CheckpointStore, Saved
from posttrain.training.experience import Chosen, Sample, choose, pack_units
from posttrain.training.learner import Learner
from posttrain.training.rl.config import Reinforcement
from posttrain.training.rl.feed import Feed
from posttrain.training.rl.measures import measures
from posttrain.training.rl.progress import Progress
from posttrain.training.rl.samples import check_signals, sample, teaches
from posttrain.training.rl.state import ROWS, State
from posttrain.training.rl.weights import Weights
from posttrain.training.state import tensors
from posttrain.training.strategy import Strategy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Of an update: its samples, whole groups, and how many of those teach and do not."""

    samples: list[Sample]
    trained: int
    dropped: int


class Iteration:
    """The updates from `first`, which may be in the middle of the iteration, to version `last`."""

    def __init__(
        self, context: StepContext, learner: Learner, strategy: Strategy, config: Reinforcement, *, feed: Feed,
        first: State, last: int, progress: Progress | None, weights: Weights, timings: Timings, store: CheckpointStore,
        reference: Learner | None = None,
    ):  # fmt: skip
        self._context, self._learner, self._strategy, self._config = context, learner, strategy, config
        self._feed, self._progress, self._weights, self._timings = feed, progress, weights, timings
        self._store, self._reference = store, reference
        self.state = first
        self._last = last

    @property
    def _policy(self) -> int:
        """The version that the engines are to have: measuring gives them no new one."""
        return 0 if self._config.measure_only else self.state.version

    def run(self) -> Saved:
        """To the iteration's end. Raises NotFinite, UserError where no group comes, OSError where the disk is full."""
        state = self.state
        saved = None
        with self._context.progress.task("updates", total=self._config.updates, unit="updates") as task:
            task.advance(self._config.updates - (self._last - state.version))
            while state.version < self._last:
                metrics = self._update()
                task.advance(1, reward=metrics["reward"], loss=metrics["loss"])
                self._store.poll()
                every = self._config.learning.checkpoint.every
                if state.version == self._last or (every and state.version % every == 0):
                    with self._timings.timed("checkpoint"):
                        self._store.save(state.version, tensors(self._learner), asdict(state))
                        saved = self._store.wait()
                    self._feed.acknowledge()
        saved = saved or self._store.newest()
        assert saved is not None, "the last update is always saved"
        return saved

    def _update(self) -> dict[str, float]:
        started, state = time.monotonic(), self.state
        batch = self._gather()
        waited, policy = time.monotonic() - started, self._policy
        state.offset, state.used = self._feed.place
        chosen = self._chosen(batch)
        begun = time.monotonic()
        learned = self._learn(chosen)
        spent = time.monotonic() - begun
        state.version += 1
        state.trained += batch.trained
        state.dropped += batch.dropped
        state.samples += len(chosen.documents)
        for reason, number in chosen.selected.counts.items():
            state.left_out[reason.value] = state.left_out.get(reason.value, 0) + number
        self._write_rows(batch, chosen)
        phases: dict[str, float] = {}
        if not self._config.measure_only:
            with self._timings.timed("weights", version=state.version):
                phases = self._weights.push(state.version)
        self._tell()
        measured = measures(batch.samples, chosen, policy=policy) | {"groups_dropped": float(batch.dropped)}
        state.reward = measured["reward"]
        values = {
            **learned, **measured, "seconds": time.monotonic() - started, "waited_seconds": waited,
            "learning_seconds": spent, **{f"{name}_seconds": seconds for name, seconds in phases.items()},
        }  # fmt: skip
        self._context.log(state.version, **values)
        log.info(
            "version %d: reward %.3f of %d samples in %d groups, %d groups dropped; %.1f s, of which %.1f waited",
            state.version, measured["reward"], len(batch.samples), batch.trained, batch.dropped, values["seconds"],
            waited,
        )  # fmt: skip
        return values

    def _gather(self) -> Batch:
        """Groups until enough of them teach something. The sampler hears at once of those that do not: it has to make
        others in their place."""
        state, config = self.state, self._config
        samples: list[Sample] = []
        trained = dropped = told = 0
        started, begun = time.time(), time.monotonic()

        def waiting() -> None:
            nonlocal told
            if dropped > told:
                told = dropped
                self._tell(dropped)

        while trained < config.groups_per_update:
            rows = self._feed.group(timeout=config.wait_seconds, waiting=waiting)
            group = [sample(row, longest=config.learning.sequence_length) for row in rows]
            samples += group
            if teaches(group, config, version=self._policy):
                trained += 1
            else:
                dropped += 1
        self._timings.record("waiting_for_data", started, time.monotonic() - begun, version=state.version + 1)
        check_signals(samples, config.objective)
        return Batch(samples, trained, dropped)

    def _chosen(self, batch: Batch) -> Chosen:
        config, state = self._config, self.state
        samples = batch.samples
        if self._reference is not None or self._config.minibatches > 1 or self._learner.objective.critic:
            with self._timings.timed("scoring", version=state.version + 1):
                samples = self._scored(samples)
        return choose(
            samples, config.objective, config.selection, version=self._policy, window=config.max_staleness,
            seed=self._context.seed,
        )  # fmt: skip

    def _scored(self, samples: Sequence[Sample]) -> list[Sample]:
        """With what the policy before the update, a critic and the reference say of the tokens."""
        signals: dict[str, dict[str, np.ndarray]] = {s.document.id: {} for s in samples}
        documents = [s.document for s in samples if s.document.loss_tokens]
        rows = pack_units(documents, unit=1, capacity=self._config.learning.row_tokens)
        packed = [build_row(row) for row in rows]
        policies = [("old_logprobs", "old_values", self._learner)]
        policies += [("reference_logprobs", "", self._reference)] if self._reference is not None else []
        for logprobs, values, learner in policies:
            for row, policy in zip(packed, learner.score(packed), strict=True):
                found = {logprobs: policy.logprobs_P, values: policy.values_P}
                for name, values_P in found.items():
                    if values_P is not None:
                        for document, piece in row.by_document(values_P).items():
                            signals[document][name] = piece
        return [
            replace(s, document=s.document.with_signals(**(signals[s.document.id] or _nothing(policies))))
            for s in samples
        ]

    def _learn(self, chosen: Chosen) -> dict[str, float]:
        config, version = self._config, self.state.version + 1
        started, begun = time.time(), time.monotonic()
        names = set(self._learner.objective.needs) | ({"old_logprobs"} if config.minibatches > 1 else set())
        if all("sampler_logprobs" in document.signals for document in chosen.documents):
            names.add("sampler_logprobs")  # how far both sides are apart is told, whether it is corrected or not
        results = []
        for part in _parts(chosen.documents, config.minibatches, self._learner.objective.unit):
            rows = pack_units(part, unit=self._learner.objective.unit, capacity=config.learning.row_tokens)
            places = self._strategy.share([[n] for n in range(len(rows))])
            mine = [build_row([d for n in place for d in rows[n]], signals=names) for place in places]
            results.append(
                self._learner.update(
                    mine, number=version, loss_tokens=sum(d.loss_tokens for d in part), sequences=len(part),
                    learning_rate=0.0 if config.measure_only else config.learning.learning_rate,
                )
            )  # fmt: skip
        tokens = sum(map(len, chosen.documents))
        self._timings.record("training", started, time.monotonic() - begun, version=version, tokens=tokens)
        means = {name: float(np.mean([r.metrics[name] for r in results])) for name in results[0].metrics}
        return {
            "loss": float(np.mean([r.loss for r in results])),
            "grad_norm": float(np.mean([r.grad_norm for r in results])), **means, "tokens": tokens,
        }  # fmt: skip

    def _write_rows(self, batch: Batch, chosen: Chosen) -> None:
        """One line for the update."""
        entry = {
            "version": self.state.version,
            "trained": [document.id for document in chosen.documents],
            "left_out": {batch.samples[n].document.id: r.value for n, r in chosen.selected.left_out.items()},
        }
        with open(self._context.directory / ROWS, "a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def _tell(self, dropped: int = 0) -> None:
        if self._progress is not None:
            state = self.state
            self._progress.tell(self._policy, state.trained, state.dropped + dropped, state.offset)


def _parts(documents: Sequence[Document], number: int, unit: int) -> list[Sequence[Document]]:
    """`documents` in `number` parts of whole units, as even as can be; never more parts than units."""
    units = len(documents) // unit
    number = max(1, min(number, units))
    cuts = [round(n * units / number) * unit for n in range(number + 1)]
    return [documents[a:b] for a, b in itertools.pairwise(cuts)]


def _nothing(policies: Sequence[tuple[str, str, Learner | None]]) -> dict[str, np.ndarray]:
    """The signals of a sample without a token."""
    return {name: np.zeros(0, np.float32) for logprobs, values, _ in policies for name in (logprobs, values) if name}
