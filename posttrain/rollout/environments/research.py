"""`research`: questions over a corpus in a Lance table with a full-text index, with the tools `search` and `open`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from posttrain.contract.files import staged_directory
from posttrain.errors import UserError
from posttrain.rollout.environments import world
from posttrain.rollout.environments.base import Task, Tool, ToolError, asking
from posttrain.rollout.environments.math import rows_of
from posttrain.rollout.environments.settings import ResearchSettings

_SYSTEM = (
    "You answer questions from an archive. Use the tools to search it and to open its pages; do not rely on memory. "
    "Give the final answer alone between <answer> and </answer>."
)
_COLUMNS = ("id", "title", "text")
_SNIPPET = 160  # characters of a page in a list of results


class Corpus:
    """A Lance table of pages: `id`, `title`, `text`. Raises UserError naming `field` where there is none.

    `holds` is kept as long as the corpus: a temporary directory that it lies in.
    """

    def __init__(self, uri: str, *, field: str, holds: object = None):
        self._holds = holds
        try:
            self._pages = lance.dataset(uri)
        except (OSError, ValueError):
            raise UserError("is no Lance table", field=field, value=uri, remedy="give the path of one") from None
        if missing := [name for name in _COLUMNS if name not in self._pages.schema.names]:
            remedy = f"its columns are {', '.join(_COLUMNS)}"
            raise UserError(f"has no column {missing[0]}", field=field, value=uri, remedy=remedy)
        if not any("text" in index["fields"] for index in self._pages.list_indices()):
            raise UserError("has no full-text index on text", field=field, value=uri, remedy="make one")

    @classmethod
    def write(cls, pages: list[world.Page], directory: Path) -> None:
        """The table with its index, whole or not at all."""
        table = pa.table({name: [getattr(page, name) for page in pages] for name in _COLUMNS})
        with staged_directory(directory) as staging:
            made = lance.write_dataset(table, str(staging / "pages.lance"))
            made.create_scalar_index("text", "INVERTED")

    def search(self, query: str, limit: int) -> list[dict[str, str]]:
        """The best pages by BM25: id, title and how the text begins."""
        found = self._pages.scanner(
            columns=[*_COLUMNS], full_text_query=query, limit=limit, disable_scoring_autoprojection=True
        ).to_table()
        return [{"id": row["id"], "title": row["title"], "begins": row["text"][:_SNIPPET]} for row in found.to_pylist()]

    def open(self, page: str) -> str | None:
        quoted = page.replace("'", "''")
        rows = self._pages.to_table(columns=["title", "text"], filter=f"id = '{quoted}'", limit=1).to_pylist()
        return f"# {rows[0]['title']}\n\n{rows[0]['text']}" if rows else None


class Search:
    name = "search"
    description = "Search the archive by words. Gives the best pages: id, title, how the text begins."
    parameters: dict[str, Any] = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 500},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(self, corpus: Corpus):
        self._corpus = corpus

    def call(self, arguments: Mapping[str, Any]) -> str:
        words = "".join(c if c.isalnum() else " " for c in arguments["query"])
        if not words.strip():
            raise ToolError("search: query: holds no word")
        return json.dumps(self._corpus.search(words, arguments.get("limit", 5)), ensure_ascii=False)


class Open:
    name = "open"
    description = "Open a page of the archive by its id and read the whole of it."
    parameters: dict[str, Any] = {  # noqa: RUF012
        "type": "object",
        "properties": {"id": {"type": "string", "minLength": 1, "maxLength": 200}},
        "required": ["id"],
        "additionalProperties": False,
    }

    def __init__(self, corpus: Corpus):
        self._corpus = corpus

    def call(self, arguments: Mapping[str, Any]) -> str:
        page = self._corpus.open(arguments["id"])
        if page is None:
            raise ToolError(f"open: there is no page {arguments['id']!r}; search gives ids")
        return page


class ResearchEnvironment:
    """Makes the archive of a made-up world where no corpus is named."""

    name, summary = "research", "questions over an archive: search, open, answer"

    def __init__(self, settings: ResearchSettings):
        self._settings = settings

    @cached_property
    def _world(self) -> world.World:
        return world.make(self._settings.people, self._settings.seed)

    @cached_property
    def corpus(self) -> Corpus:
        s = self._settings
        if s.corpus:
            return Corpus(s.corpus, field="corpus")
        temporary = None if s.directory else tempfile.TemporaryDirectory(prefix="posttrain-research-")
        base = Path(temporary.name if temporary else s.directory)
        directory = base / f"world-{s.seed}-{s.people}"
        if not directory.exists():
            Corpus.write(world.pages(self._world), directory)
        return Corpus(str(directory / "pages.lance"), field="directory", holds=temporary)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (Search(self.corpus), Open(self.corpus))

    def tasks(self) -> Iterator[Task]:
        s = self._settings
        if s.corpus:
            known = {"question", "answer", "id", "verifier", "metadata"}
            for number, row in enumerate(rows_of(Path(s.questions), "questions", {"question", "answer"}, known), 1):
                yield _task(str(row.get("id", number)), row["question"], str(row["answer"]),
                            row.get("verifier", "exact"), row.get("metadata", {"ignore_case": True}))  # fmt: skip
            return
        for index, asked in enumerate(world.questions(self._world, s.size, s.seed)):
            bare = asked.answer.removeprefix("the ")
            accept = {"accept": [bare]} if bare != asked.answer else {}
            metadata = {"ignore_case": True, "hops": asked.hops} | accept
            yield _task(f"world-{s.seed}-{index}", asked.question, asked.answer, "exact", metadata)


def _task(name: str, question: str, answer: str, verifier: str, metadata: dict[str, Any]) -> Task:
    return Task(name, asking(question, _SYSTEM), verifier, answer, metadata)
