"""Checkpoints: sharded by torch.distributed.checkpoint, saved beside the training, trusted by their digests.

    checkpoints/RUN/STEP/latest                  the name of the newest complete one
    checkpoints/RUN/STEP/step-000120/            __0_0.distcp … .metadata, and manifest.json

Invariants: a checkpoint takes its name when it is whole and on disk, manifest included; files are compared with
the manifest's digests before any of them is read; a damaged one is named and passed over; the content digest covers
tensors and state, and no name of a run, time or layout of files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import AsyncStager

from posttrain.contract.digest import digest_file, digest_value
from posttrain.contract.files import beside, replace_directory, sync_tree, write_atomic, write_json
from posttrain.errors import UserError
from posttrain.training.config import Checkpoints

log = logging.getLogger(__name__)
warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process is meant here

MANIFEST, LATEST, SCHEMA = "manifest.json", "latest", 1
OWN = "manifest"  # in the manifest, the digest of the rest of it
Tensors = Mapping[str, Any]  # nested by name: {"weights": {…}, "optimizer": {name: {…}}, "rng": {…}}


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint. `state` is JSON: the update, the place in the data, what the loop has to remember."""

    path: Path
    update: int
    digest: str
    request: str
    state: dict[str, Any]


class CheckpointStore:
    """The checkpoints of one step. `request` names what they were trained on and how; others' are not taken."""

    def __init__(self, directory: Path, config: Checkpoints, *, request: str):
        self._directory, self._config, self._request = directory, config, request
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Saved] | None = None
        self._last: Saved | None = None
        self.protected: set[int] = set()  # updates whose checkpoint is not pruned

    def newest(self) -> Saved | None:
        """The newest complete checkpoint of this request whose digests hold."""
        _remove_unfinished(self._directory)
        for path in sorted(self._directory.glob("step-*"), reverse=True):
            try:
                saved = read(path)
                if saved.request == self._request:
                    verify(saved)
                    return saved
                log.warning("%s belongs to another configuration, data or seed: not taken", path)
            except UserError as problem:
                log.warning("checkpoint passed over: %s", problem)
        return None

    def at(self, update: int) -> Saved:
        self.wait()
        saved = read(self._directory / _name(update))
        verify(saved)
        return saved

    def save(self, update: int, tensors: Tensors, state: dict[str, Any]) -> None:
        """Start saving; the tensors may change as soon as this returns. Raises what the save before it raised."""
        self.wait()
        with ExitStack() as held:
            staging, copy = held.enter_context(beside(self._directory / _name(update))), _KeptCopy()
            writing = dcp.async_save(dict(tensors), checkpoint_id=staging, async_stager=copy)
            assert isinstance(writing, Future)
            self._pending = self._finisher.submit(self._finish, held.pop_all(), staging, writing, copy, update, state)

    def poll(self) -> None:
        """Raise what a save raised that has ended by now."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> Saved | None:
        """Wait for the save under way; the last one saved here. Raises OSError (ENOSPC where the disk is full)."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._last = pending.result()
        return self._last

    def close(self) -> None:
        self._finisher.shutdown(wait=True)

    def _finish(
        self, held: ExitStack, staging: Path, writing: Future[Any], copy: _KeptCopy, update: int, state: dict[str, Any]
    ) -> Saved:
        """Everything behind the tensors' own files: digests, manifest, names, pruning. Runs in its own thread."""
        path = self._directory / _name(update)
        try:
            with held:
                writing.result()
                content = content_digest(copy.tensors, state)
                copy.tensors = {}
                files = {p.name: digest_file(p) for p in sorted(staging.iterdir())}
                manifest = {
                    "schema": SCHEMA, "update": update, "request": self._request, "state": state,
                    "digest": content, "files": files,
                }  # fmt: skip
                write_json(staging / MANIFEST, manifest | {OWN: digest_value(manifest)})
                sync_tree(staging)
                os.chmod(staging, 0o755)
                replace_directory(staging, path)
        except BaseException as problem:
            if (full := _disk_full(problem)) is not None:
                raise OSError(full, os.strerror(full), str(path)) from problem
            raise
        write_atomic(self._directory / LATEST, path.name + "\n")
        self._prune(update)
        log.info("checkpoint %s saved", path)
        return Saved(path, update, content, self._request, state)

    def _prune(self, newest: int) -> None:
        """Remove what is neither among the last ones, nor kept for good, nor protected, nor of this request."""
        mine: list[int] = []
        for path in self._directory.glob("step-*"):
            number = int(path.name.removeprefix("step-"))
            if number <= newest and _request_of(path) == self._request:
                mine.append(number)
            elif number != newest:
                shutil.rmtree(path)
        for number in sorted(mine)[: -self._config.keep_last]:
            for_good = self._config.keep_every and number % self._config.keep_every == 0
            if not for_good and number not in self.protected:
                shutil.rmtree(self._directory / _name(number))


class _KeptCopy(AsyncStager):
    """Copies the tensors to the CPU before training goes on, and keeps the copy for its digest."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        self.tensors = _copied(state_dict)
        return self.tensors

    def synchronize_staging(self) -> None:
        return None

    def close(self) -> None:
        pass


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return value.detach().to("cpu", copy=True)


def read(path: Path) -> Saved:
    """What the manifest in `path` says. Raises UserError where there is none that can be read and has its digest."""
    manifest = _manifest(path)
    return Saved(path, manifest["update"], manifest["digest"], manifest["request"], manifest["state"])


def verify(saved: Saved) -> None:
    """Raise UserError where a file is not as the manifest says."""
    for name, expected in _manifest(saved.path)["files"].items():
        file = saved.path / name
        if not file.is_file():
            raise UserError(f"is damaged: {name} is missing", field=str(saved.path))
        if digest_file(file) != expected:
            raise UserError(f"is damaged: {name} does not have its digest", field=str(saved.path))


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        own = manifest.pop(OWN)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UserError(f"has no manifest that can be read ({type(problem).__name__})", field=str(path)) from None
    if own != digest_value(manifest):
        raise UserError(f"is damaged: {MANIFEST} does not have its digest", field=str(path))
    return manifest


def load(saved: Saved, tensors: Tensors) -> None:
    """Fill `tensors` in place from a checkpoint that has been verified."""
    dcp.load(dict(tensors), checkpoint_id=saved.path)


def content_digest(tensors: Tensors, state: dict[str, Any]) -> str:
    """Digest of names, types, shapes and values of the tensors, and of the state."""
    total = hashlib.sha256(digest_value(state).encode())
    for name, tensor in sorted(_flat(tensors)):
        total.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        total.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
    return "sha256:" + total.hexdigest()


def _flat(tensors: Tensors, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in tensors.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def _name(update: int) -> str:
    return f"step-{update:06d}"


def _request_of(path: Path) -> str | None:
    try:
        return read(path).request
    except UserError:
        return None


def _remove_unfinished(directory: Path) -> None:
    """What a killed save has left behind."""
    for path in directory.glob(".step-*"):
        log.info("removing %s, which was never finished", path)
        shutil.rmtree(path, ignore_errors=True)


def _disk_full(problem: BaseException | None) -> int | None:
    """The errno where a full disk or quota is behind `problem`, however the library wrapped it."""
    seen: set[int] = set()
    stack = [problem]
    while stack:
        found = stack.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        number = getattr(found, "errno", None)
        if number in (errno.ENOSPC, errno.EDQUOT):
            return number
        stack += [found.__cause__, found.__context__]
        failures = getattr(found, "failures", None)  # CheckpointException: {rank: (error, traceback)}
        if isinstance(failures, dict):
            stack += [wrapped[0] if isinstance(wrapped, tuple) else wrapped for wrapped in failures.values()]
    return None
