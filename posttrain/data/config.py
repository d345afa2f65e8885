"""What data preparation may be asked for. Imports nothing heavy: the step's spec uses it.

Every error names the key by its dotted path below `prepare_data`.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from posttrain.errors import UserError

ROOT = "prepare_data"
KINDS = ("reasoning_gym", "files", "hf_disk")
INTO = ("split", "train", "validation", "evaluation")
TIERS = ("easy", "medium", "hard")
FORMATS = ("jsonl", "parquet", "csv")


@dataclass
class Columns:
    """Which column of a file holds what; empty: none. Give either question and answer, or messages."""

    question: str = "question"
    answer: str = "answer"
    messages: str = ""  # a list of {role, content}, or its JSON; takes the place of question and system
    system: str = ""
    reasoning: str = ""
    id: str = ""
    tier: str = ""
    metadata: list[str] = field(default_factory=list)  # kept for the verifier, and for questions[…].question


@dataclass
class Source:
    """Where rows come from. `into` sends all of them to one set instead of splitting them over the three."""

    kind: str = "reasoning_gym"
    name: str = ""  # what rows call it; empty: after the data set or the file
    into: str = "split"
    tier: str = ""  # of all its rows; empty: by the rule in `tiers`
    question: str = ""  # a template over the row's `question` and metadata; empty: the question as it is

    dataset: str = ""  # reasoning_gym: the generator
    size: int = 1000  # reasoning_gym: how many entries to generate
    seed: int | None = None  # reasoning_gym: None: from the run's seed and the source's place
    parameters: dict[str, Any] = field(default_factory=dict)  # reasoning_gym: the generator's own

    path: str = ""  # files: a file or a pattern such as data/*.jsonl; hf_disk: the directory
    format: str = ""  # files: jsonl, parquet or csv; empty: by the file's name
    split: str = ""  # hf_disk: which split, where it holds several
    columns: Columns = field(default_factory=Columns)
    verifier: str = "exact"  # files, hf_disk: exact, numeric, math or reasoning_gym:DATASET

    @property
    def label(self) -> str:
        return self.name or self.dataset or self.path.rstrip("/").rpartition("/")[2]

    def check(self, where: str) -> None:
        """UserError for what makes no sense; `where` is the source's dotted path."""
        _one_of(self.kind, KINDS, f"{where}.kind")
        _one_of(self.into, INTO, f"{where}.into")
        if self.tier:
            _one_of(self.tier, TIERS, f"{where}.tier")
        if self.kind == "reasoning_gym":
            if not self.dataset:
                raise UserError("is missing", field=f"{where}.dataset", remedy="name a generator, as in chain_sum")
            _at_least(self.size, 1, f"{where}.size")
            for reserved in {"size", "seed"} & set(self.parameters):
                raise UserError("has a key of its own", field=f"{where}.parameters.{reserved}",
                                remedy=f"set {where}.{reserved}")  # fmt: skip
            return
        if not self.path:
            raise UserError("is missing", field=f"{where}.path", remedy="give the path of the data")
        if self.format:
            _one_of(self.format, FORMATS, f"{where}.format")
        known = self.verifier in ("exact", "numeric", "math") or self.verifier.startswith("reasoning_gym:")
        if not known:
            raise UserError("is no verifier", field=f"{where}.verifier", value=self.verifier,
                            remedy="write exact, numeric, math or reasoning_gym:DATASET")  # fmt: skip
        if not (self.columns.messages or self.columns.question):
            raise UserError("is missing", field=f"{where}.columns.question", remedy="name it, or columns.messages")


@dataclass
class Prompt:
    """How a problem becomes a conversation. Rows that are conversations already are left as they are."""

    system: str = ""
    user: str = "{question} Reply <answer>N</answer>."
    assistant: str = "{reasoning}<answer>{answer}</answer>"
    reasoning: str = "none"  # none; column: the source's; steps: the running result of a sum, written out

    def __post_init__(self) -> None:
        _placeholders(self.user, {"question"}, {"question"}, f"{ROOT}.prompt.user")
        _placeholders(self.assistant, {"answer"}, {"answer", "reasoning"}, f"{ROOT}.prompt.assistant")
        _one_of(self.reasoning, ("none", "column", "steps"), f"{ROOT}.prompt.reasoning")


@dataclass
class Limits:
    """What a row may measure; longer ones are quarantined. `tokens` 0: the model's context length."""

    characters: int = 20_000
    tokens: int = 0

    def __post_init__(self) -> None:
        _at_least(self.characters, 1, f"{ROOT}.limits.characters")
        _at_least(self.tokens, 0, f"{ROOT}.limits.tokens")


@dataclass
class Dedup:
    """Exact: the same words. Near: the Jaccard likeness of word `shingle`-grams is at least `threshold`."""

    exact: bool = True
    near: bool = True
    threshold: float = 0.8
    shingle: int = 3
    permutations: int = 128
    distinguish_numbers: bool = True  # rows whose numbers and operators differ are never near duplicates

    def __post_init__(self) -> None:
        _share(self.threshold, f"{ROOT}.dedup.threshold")
        _at_least(self.shingle, 1, f"{ROOT}.dedup.shingle")
        _at_least(self.permutations, 16, f"{ROOT}.dedup.permutations")


@dataclass
class Decontamination:
    """A row leaves training where its question is an evaluation question, or `overlap` of their n-grams agree."""

    enabled: bool = True
    n: int = 8  # words; questions of fewer than 2 n words are compared as a whole
    overlap: float = 0.7
    frame: float = 0.1  # n-grams that more than this share of the evaluation rows have are the prompt's frame
    distinguish_numbers: bool = False  # true for generated problems that share their wording

    def __post_init__(self) -> None:
        _at_least(self.n, 1, f"{ROOT}.decontamination.n")
        _share(self.overlap, f"{ROOT}.decontamination.overlap")
        _share(self.frame, f"{ROOT}.decontamination.frame")


@dataclass
class Tiers:
    """How hard a row is: by its generator's `parameters`, by a model's `pass_rate`, or `none`: all are medium."""

    by: str = "parameters"
    endpoint: str = ""  # OpenAI-compatible, as in http://127.0.0.1:8000/v1; empty: vLLM loads the run's model here
    model: str = ""  # what the endpoint calls it
    key_variable: str = "OPENAI_API_KEY"  # the environment variable that holds the key, where one is needed
    samples: int = 4
    temperature: float = 0.7
    max_tokens: int = 64
    easy_from: float = 0.7  # pass rate
    medium_from: float = 0.3

    def __post_init__(self) -> None:
        _one_of(self.by, ("parameters", "pass_rate", "none"), f"{ROOT}.tiers.by")
        address = urlsplit(self.endpoint)
        if self.endpoint and (address.scheme not in ("http", "https") or not address.hostname):
            raise UserError("is no address", field=f"{ROOT}.tiers.endpoint", value=self.endpoint,
                            remedy="write http://HOST:PORT/v1")  # fmt: skip
        if address.query or address.username or address.password:
            raise UserError("must hold no query and no password, since it is recorded", field=f"{ROOT}.tiers.endpoint",
                            remedy=f"put a key into ${self.key_variable}")  # fmt: skip
        if self.endpoint and not self.model:
            raise UserError("is missing", field=f"{ROOT}.tiers.model", remedy="say what the endpoint calls the model")
        _at_least(self.samples, 1, f"{ROOT}.tiers.samples")
        _at_least(self.max_tokens, 1, f"{ROOT}.tiers.max_tokens")
        if self.by == "pass_rate" and not self.temperature > 0:
            raise UserError("must be above 0 for pass rates", field=f"{ROOT}.tiers.temperature", value=self.temperature)
        if not 0 <= self.medium_from <= self.easy_from <= 1:
            raise UserError("0 <= medium_from <= easy_from <= 1 does not hold", field=f"{ROOT}.tiers")


@dataclass
class Split:
    """Rows of each set, exactly. `train` 0: all that is left."""

    train: int = 0
    validation: int = 128
    evaluation: int = 200

    def __post_init__(self) -> None:
        _at_least(self.train, 0, f"{ROOT}.split.train")
        _at_least(self.validation, 1, f"{ROOT}.split.validation")
        _at_least(self.evaluation, 1, f"{ROOT}.split.evaluation")


def demo_sources() -> list[Source]:
    """Sums and differences of two or three numbers of one or two digits."""
    digits = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2}
    return [Source(dataset="chain_sum", size=4000, question="What is {expression}?", parameters=digits)]


@dataclass
class DataConfig:
    """All of it. `name` is the directory below lake/ that takes the tables."""

    name: str = "arithmetic"
    sources: list[Source] = field(default_factory=demo_sources)
    prompt: Prompt = field(default_factory=Prompt)
    limits: Limits = field(default_factory=Limits)
    dedup: Dedup = field(default_factory=Dedup)
    decontamination: Decontamination = field(default_factory=Decontamination)
    tiers: Tiers = field(default_factory=Tiers)
    split: Split = field(default_factory=Split)
    quarantine_limit: float = 0.05  # share of bad rows above which the step fails

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith((".", "/")) or ".." in self.name:
            raise UserError("is no name", field=f"{ROOT}.name", value=self.name)
        if not self.sources:
            raise UserError("names none", field=f"{ROOT}.sources", remedy="give at least one source")
        for index, source in enumerate(self.sources):
            source.check(f"{ROOT}.sources[{index}]")
        if not any(source.into in ("split", "train") for source in self.sources):
            raise UserError("none of them goes into training", field=f"{ROOT}.sources", remedy="set into: split")
        _share(self.quarantine_limit, f"{ROOT}.quarantine_limit")


def _one_of(value: str, known: Iterable[str], field: str) -> None:
    names = list(known)
    if value not in names:
        near = difflib.get_close_matches(value, names, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        raise UserError("is not known", field=field, value=value, remedy=remedy)


def _at_least(value: int, least: int, field: str) -> None:
    if value < least:
        raise UserError(f"must be at least {least}", field=field, value=value)


def _share(value: float, field: str) -> None:
    if not 0 <= value <= 1:
        raise UserError("must lie between 0 and 1", field=field, value=value)


def _placeholders(template: str, needed: set[str], known: set[str], field: str) -> None:
    try:
        found = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as problem:
        raise UserError(f"is no template: {problem}", field=field, value=template, remedy="write {{ for a {") from None
    if needed - found:
        raise UserError(f"lacks {{{min(needed - found)}}}", field=field, value=template)
    if found - known:
        remedy = "known: " + ", ".join(f"{{{name}}}" for name in sorted(known))
        raise UserError(f"{{{min(found - known)}}} is not known", field=field, value=template, remedy=remedy)
