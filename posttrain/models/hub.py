"""A model of the Hugging Face hub, or of its cache on this machine (`HF_HOME`) where there is no network."""

from __future__ import annotations

import shutil
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from posttrain.errors import UserError

_WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]


def fetch(name: str, *, field: str) -> Path:
    """The local snapshot of `ID` or `ID@REVISION`; its directory's name is the commit.

    Raises UserError where the hub does not know it, refuses it, or cannot be reached.
    """
    repository, _, revision = name.partition("@")
    constants.HF_HUB_OFFLINE = False  # `envs/run` keeps processes offline; a source `hub:` is the request to ask it
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_WANTED))
    except LocalEntryNotFoundError:
        problem, remedy = "the hub cannot be reached and its cache holds no such model", "give path:DIR of a copy"
    except HFValidationError:
        problem, remedy = "is no name of a model", "write hub:OWNER/NAME or hub:OWNER/NAME@REVISION"
    except HfHubHTTPError as refused:
        status = refused.response.status_code if refused.response is not None else "no answer"
        problem, remedy = f"the hub refuses the model (HTTP {status})", "check its name, and HF_TOKEN if it is gated"
    raise UserError(problem, field=field, value=f"hub:{name}", remedy=remedy)


def copy(source: Path, target: Path) -> None:
    """Copy a directory's files, following the links of the hub's cache."""
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
