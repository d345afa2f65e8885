"""Whether a manifest means something, before anything of it is started."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain.engine.manifest import Finding, Manifest


def lint(manifest: Manifest, *, parameters: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything wrong with a manifest, in the order of the file."""
    return list(manifest.problems)
