"""A Hugging Face data set that `save_to_disk` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets import DatasetDict, load_from_disk

from posttrain.data.config import Source
from posttrain.data.schema import Raw, Rejected
from posttrain.data.sources.columns import check_columns, to_raw
from posttrain.errors import UserError


def read(source: Source, index: int, where: str, workspace: Path) -> Iterator[Raw | Rejected]:
    directory = workspace / source.path
    try:
        loaded = load_from_disk(str(directory))
    except Exception as problem:  # the library raises a dozen kinds for what is not there or damaged
        what = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        raise UserError(f"cannot be loaded: {what}", field=f"{where}.path", value=str(directory),
                        remedy="give a directory that save_to_disk wrote") from None  # fmt: skip
    if isinstance(loaded, DatasetDict):
        if source.split not in loaded:
            raise UserError("the data set has no such split", field=f"{where}.split", value=source.split,
                            remedy=f"it has {', '.join(loaded)}")  # fmt: skip
        loaded = loaded[source.split]
    check_columns(source, where, set(loaded.column_names))
    for number, record in enumerate(loaded):
        yield to_raw(source, index, where, f"{directory.name}:{number}", record)
