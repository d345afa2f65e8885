"""The Lance table under a stream: reads its controls and spans, stages fragments, commits changes.

Invariants: controls are read at exactly the version that a commit names as its read version; a version is
never taken for an older one; nothing here decides what a commit holds (see `changes`) or what is read
(see `offsets`). Whatever Lance raises becomes one of three: `Conflict` (nothing of this try is in the
table, or all of it is: look), `Unanswered` (the same, and the store is not well), or StoreUnavailable
where trying again is of no use.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import lance
import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata, LanceFragment, RowIdSequence, write_fragments

from posttrain.lakestream import storage
from posttrain.lakestream.changes import Change
from posttrain.lakestream.controls import COLUMN, Controls, Held, collect, decode, encode
from posttrain.lakestream.errors import StoreUnavailable, StreamError, StreamNotFound, said
from posttrain.lakestream.offsets import Ids, Span

_FORMAT: Final = "2.2"
_METADATA = b"posttrain.lakestream"
_RETRIES = 1  # Lance's own twenty back off for seconds; the loops above try again sooner, and look first
_PERMANENT = (
    "AccessDenied", "Access Denied", "403 Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket",
    "No space left on device", "Read-only file system", "Permission denied", "Quota",
)  # fmt: skip
_MOMENT = 0.05  # seconds
_MISUSE = ("Invalid user input", "LanceError(Schema)")


@cache
def _session() -> lance.Session:
    """The caches that all handles of this process share. Lance's own bounds, 7 GiB, are those of a server:
    every version's manifest would stay in them, and a producer would grow by 100 MB in a thousand commits."""
    return lance.Session(metadata_cache_size_bytes=64 << 20, index_cache_size_bytes=256 << 20)


class Conflict(Exception):
    """Another commit was in the way. The controls tell what has become of this one."""


class Unanswered(Exception):
    """The store failed or did not answer. The controls tell what has become of this one, once it does."""


@dataclass(frozen=True)
class Identity:
    """What a stream is made of: its rows' schema, and the name and version of that schema ("" and 0: none)."""

    schema: pa.Schema
    name: str = ""
    version: int = 0


@dataclass(frozen=True)
class Landed:
    """Where a commit landed: the version, and the fragments of the controls that it wrote."""

    version: int
    controls: tuple[int, ...]


class Table:
    """A handle at one version of the table. Not for use from two threads at once."""

    def __init__(self, dataset: LanceDataset, uri: str, identity: Identity, options: Mapping[str, str]):
        self.uri, self.identity = uri, identity
        self.options = dict(options)
        self._dataset, self._looked_at = dataset, time.monotonic()
        self._held: dict[int, Held] = {}  # control fragments already read: fragments never change
        self._fragments: dict[int, FragmentMetadata] = {}
        self._spans: dict[int, Span] = {}
        self._listed = -1
        self._control_field = _field_id(dataset)
        self._ids = lru_cache(maxsize=16)(self._read_ids)
        self._writers = ThreadPoolExecutor(2) if storage.is_remote(uri) else None

    @classmethod
    def create(cls, uri: str, identity: Identity, options: Mapping[str, str]) -> Table:
        """The table, made now unless it is there. Raises StreamError where there is another schema; Unanswered."""
        _check_columns(identity.schema)
        wanted = pa.schema([pa.field(f.name, f.type) for f in identity.schema] + [pa.field(COLUMN, pa.string())])
        wanted = wanted.with_metadata({_METADATA: _describe(identity)})
        try:
            with answers(uri):
                lance.write_dataset(
                    wanted.empty_table(), uri, mode="create", data_storage_version=_FORMAT,
                    enable_stable_row_ids=True, storage_options=dict(options) or None,
                )  # fmt: skip
        except (Conflict, Unanswered) as problem:
            if "already exists" not in str(problem).lower():
                _check_patience(uri, problem)
                raise
        except (OSError, pa.ArrowNotImplementedError) as problem:
            raise StreamError(f"cannot be that of a stream: {said(problem)}", field="schema") from None
        table = cls.open(uri, options)
        if table.identity != identity:
            raise StreamError("there is a stream with another schema", field="uri", value=uri, remedy="open it instead")
        return table

    @classmethod
    def open(cls, uri: str, options: Mapping[str, str]) -> Table:
        """The table under `uri`. Raises StreamNotFound, StreamError where it is no stream's; Unanswered."""
        try:
            with answers(uri):
                dataset = lance.dataset(uri, storage_options=dict(options) or None, session=_session())
        except Unanswered as problem:
            if "was not found" in str(problem):
                remedy = "create it first"
                raise StreamNotFound("there is no stream here", field="uri", value=uri, remedy=remedy) from None
            _check_patience(uri, problem)
            raise
        described = (dataset.schema.metadata or {}).get(_METADATA)
        if described is None:
            raise StreamError("is a Lance table but no stream", field="uri", value=uri, remedy="create a stream")
        return cls(dataset, uri, _identity(described), options)

    def fragment(self, number: int) -> LanceFragment:
        found = self._dataset.get_fragment(number)
        assert found is not None, f"version {self.version} has no fragment {number}"
        return found

    def fork(self) -> Table:
        """Another handle at the same version, with caches of its own."""
        other = Table(self._dataset, self.uri, self.identity, self.options)
        other._looked_at = self._looked_at
        return other

    @property
    def is_fresh(self) -> bool:
        """Whether this was the newest version a moment ago. Who commits against it has a conflict where it is not."""
        return time.monotonic() - self._looked_at < _MOMENT

    @property
    def version(self) -> int:
        return self._dataset.version

    @property
    def dataset(self) -> LanceDataset:
        """The Lance data set at this version, controls and all."""
        return self._dataset

    def latest(self) -> int:
        """The newest version's number. Raises Unanswered."""
        with answers(self.uri):
            return self._dataset.latest_version

    def refresh(self, newest: int | None = None) -> None:
        """Move to the newest version, or to `newest` where the caller has just asked for it. Raises Unanswered."""
        newest, seen = self.latest() if newest is None else newest, self._dataset.version
        if newest < seen:  # a listing that ran while versions were cleaned up may miss the newest
            raise Unanswered(f"version {newest} was listed as newer than {seen}")
        if newest > seen:
            with answers(self.uri):
                self._dataset = self._dataset.checkout_version(newest)
        self._looked_at = time.monotonic()

    def holds(self, fragments: Iterable[int]) -> bool:
        """Whether every one of `fragments` is part of this version."""
        present = self._dataset.fragment_ids()
        return all(fragment in present for fragment in fragments)

    def controls(self) -> Controls | None:
        """The controls at this version; None where the stream's own was not committed yet. Raises Unanswered."""
        mine = {i: m for i, m in self._metadata().items() if self._is_control(m)}
        unread = [i for i in mine if i not in self._held]
        if unread:
            with answers(self.uri):
                fragments = [self.fragment(i) for i in unread]
                texts = self._dataset.scanner(columns=[COLUMN], fragments=fragments).to_table()[COLUMN].to_pylist()
            self._held |= {i: Held(i, decode(text)) for i, text in zip(unread, texts, strict=True)}
        self._held = {i: self._held[i] for i in mine}
        return collect(self._held.values())

    def spans(self) -> tuple[Span, ...]:
        """The data fragments of this version."""
        data = {i: m for i, m in self._metadata().items() if not self._is_control(m)}
        self._spans = {i: self._spans.get(i) or self._span(m) for i, m in data.items()}
        return tuple(self._spans.values())

    def ids_of(self, span: Span) -> Ids:
        """The row ids of `span`, ascending."""
        return np.sort(self._ids(span.fragment), kind="stable")

    def stored_ids(self, span: Span) -> Ids:
        """The row ids of `span` in the order in which its fragment has them."""
        return self._ids(span.fragment)

    def scan(self, fragments: Sequence[int], columns: Sequence[str], predicate: str) -> pa.Table:
        """The rows of `fragments` that match, with `columns` and `_rowid`. Raises Unanswered."""
        with answers(self.uri):
            return self._dataset.scanner(
                columns=list(columns), filter=predicate, with_row_id=True,
                fragments=[self.fragment(fragment) for fragment in fragments],
            ).to_table()  # fmt: skip

    def stage(self, rows: pa.Table) -> list[FragmentMetadata]:
        """Write `rows` as fragments that no version holds yet. Raises Unanswered."""
        with answers(self.uri):
            return write_fragments(rows, self._dataset, mode="append") if rows.num_rows else []

    def stage_for(self, change: Change, rows: pa.Table) -> tuple[list[FragmentMetadata], list[FragmentMetadata]]:
        """The change's controls and `rows` as fragments; on a remote store both are written at the same time."""
        texts = [pa.table({COLUMN: [encode(body)]}) for body in change.write]
        if self._writers is None or not rows.num_rows:
            return [f for text in texts for f in self.stage(text)], self.stage(rows)
        written = [self._writers.submit(self.stage, text) for text in texts]
        data = self.stage(rows)
        return [f for each in written for f in each.result()], data

    def commit(self, change: Change, controls: Sequence[FragmentMetadata], data: Sequence[FragmentMetadata]) -> Landed:
        """One try at committing `change` with the staged fragments, read version: this one.

        Fragments must not be given to a second try once a fence has come: a ghost of the first may have them, and
        the clean-up behind the fence would take them away.
        Moves to the committed version. Raises Conflict, Unanswered, StoreUnavailable.
        """
        operation = LanceOperation.Update(removed_fragment_ids=list(change.remove), new_fragments=[*controls, *data])
        with answers(self.uri):
            self._dataset = LanceDataset.commit(
                self._dataset, operation, read_version=self._dataset.version, max_retries=_RETRIES,
                commit_message=change.what,
            )  # fmt: skip
        # Lance numbers new fragments in their order, so they are the last ones of this version
        new = list(self._dataset.fragment_ids())[-len(controls) - len(data) :] if controls else []
        return Landed(self._dataset.version, tuple(new[: len(controls)]))

    def row_id(self, fragment: int) -> int:
        """The row id of a control's one row."""
        ids = _sequence(self.fragment(fragment).metadata)
        assert ids is not None and len(ids) == 1
        return int(ids[0])

    def _metadata(self) -> dict[int, FragmentMetadata]:
        """Metadata by fragment id, read once for each fragment: it never changes."""
        if self._listed != self._dataset.version:
            present = list(self._dataset.fragment_ids())
            unread = [i for i in present if i not in self._fragments]
            if len(unread) > 16:
                new = {f.fragment_id: f.metadata for f in self._dataset.get_fragments()}
            else:
                new = {i: self.fragment(i).metadata for i in unread}
            self._fragments = {i: self._fragments.get(i) or new[i] for i in present}
            self._listed = self._dataset.version
        return self._fragments

    def _is_control(self, metadata: FragmentMetadata) -> bool:
        return metadata.files[0].fields == [self._control_field]

    def _span(self, metadata: FragmentMetadata) -> Span:
        ids = self._ids(metadata.id)
        return Span(metadata.id, int(ids.min()), int(ids.max()), metadata.num_rows, size_of([metadata]))

    def _read_ids(self, fragment: int) -> Ids:
        ids = _sequence(self._metadata()[fragment])
        if ids is not None:
            return ids
        with answers(self.uri):  # too many to be in the manifest
            scan = self._dataset.scanner(columns=[], with_row_id=True, fragments=[self.fragment(fragment)])
            return scan.to_table()["_rowid"].to_numpy()


def _check_columns(schema: pa.Schema) -> None:
    for name in schema.names:
        if name == COLUMN:
            raise StreamError(f"the column {name!r} is the stream's own", field="schema", remedy="rename it")
        if not name or schema.names.count(name) > 1:
            raise StreamError("every column needs a name of its own", field="schema", value=name)


def _field_id(dataset: LanceDataset) -> int:
    field = dataset.lance_schema.field(COLUMN)
    assert field is not None
    return field.id()


def size_of(fragments: Iterable[FragmentMetadata]) -> int:
    """Bytes of the fragments' data files."""
    return sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files)


def _sequence(metadata: FragmentMetadata) -> Ids | None:
    """The fragment's row ids in its own order; None where they are not in the manifest."""
    assert metadata.row_id_meta is not None, "the table was made without stable row ids"
    try:
        return RowIdSequence.from_inline_metadata(metadata.row_id_meta).to_pyarrow().to_numpy(zero_copy_only=False)
    except (ValueError, OSError, NotImplementedError):
        return None


@contextmanager
def answers(uri: str) -> Iterator[None]:
    """Sort what Lance raises into Conflict, Unanswered and StoreUnavailable."""
    try:
        yield
    except CommitConflictError as problem:
        raise Conflict(str(problem)) from problem
    except (OSError, ValueError) as problem:
        text = str(problem)
        if any(sign in text for sign in _PERMANENT):
            raise _refused(uri, problem) from problem
        if any(sign in text for sign in _MISUSE):
            raise
        lower = text.lower()
        if isinstance(problem, ValueError) and not any(sign in lower for sign in ("not found", "lanceerror(io)")):
            raise  # else a version or file that was cleaned up meanwhile, or an answer lost in a scan
        if "conflict" in lower:
            raise Conflict(text) from problem
        raise Unanswered(text) from problem


def _refused(uri: str, problem: Exception) -> StoreUnavailable:
    return StoreUnavailable("the store refused", uri=uri, cause=problem)


def _check_patience(uri: str, problem: Conflict | Unanswered) -> None:
    """Raise StoreUnavailable where waiting is of no use: a directory that says no will not change its mind."""
    if isinstance(problem, Unanswered) and not storage.is_remote(uri):
        raise _refused(uri, problem) from problem


def _describe(identity: Identity) -> bytes:
    """The identity as JSON; the rows' schema keeps what the table's own, nullable throughout, cannot say."""
    schema = base64.b64encode(identity.schema.serialize().to_pybytes()).decode()
    return json.dumps({"schema": schema, "name": identity.name, "version": identity.version}).encode()


def _identity(described: bytes) -> Identity:
    value = json.loads(described)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
    return Identity(schema, value["name"], value["version"])
