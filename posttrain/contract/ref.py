"""References: how a phase names data, a model or a checkpoint to the next one.

Invariant: a workflow parameter carries a `Ref`, never the data. A ref is one short string,
`PATH[@VERSION][#DIGEST]`, whose path is relative to the workspace, so that the same run gives
the same refs on a laptop and on a cluster. A URI with a scheme (`s3://…`) is kept as it is.

    lake/arithmetic/train.lance@3#sha256:9f2c…
    checkpoints/demo/sft/step-000120#sha256:11ab…
    models/smollm2-135m-instruct#sha256:77c0…
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from posttrain.errors import UserError

_FORM = re.compile(r"(?P<uri>[^#]+?)(@(?P<version>0|[1-9][0-9]*))?(#(?P<digest>sha256:[0-9a-f]{64}))?")


@dataclass(frozen=True)
class Ref:
    uri: str
    version: int | None = None
    digest: str | None = None

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version is not None else ""
        digest = f"#{self.digest}" if self.digest else ""
        return f"{self.uri}{version}{digest}"

    @classmethod
    def parse(cls, text: str, *, field: str = "reference") -> Ref:
        """The ref that `text` spells. Raises UserError naming `field` where it spells none."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise UserError("is not a reference", field=field, value=text, remedy="write PATH[@VERSION][#sha256:…]")
        path = PurePosixPath(match["uri"])
        if "://" not in match["uri"] and (path.is_absolute() or ".." in path.parts):
            raise UserError("leads out of the workspace", field=field, value=text, remedy="give a path below it")
        version = match["version"]
        return cls(match["uri"], int(version) if version else None, match["digest"])

    def locate(self, workspace: Path) -> str:
        """The absolute path in `workspace`, or the URI itself where it has a scheme."""
        return self.uri if "://" in self.uri else str(workspace / self.uri)
