"""Whether a manifest means something, before anything of it is started.

First Argo's own rules (checks.py), by which the controller would refuse it; then what this engine
does not carry (carried.py), each by the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from posttrain.engine.linting.carried import not_carried
from posttrain.engine.linting.checks import Checks
from posttrain.engine.manifest import Finding, Manifest


def lint(manifest: Manifest, *, parameters: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything wrong with a manifest, in the order of the file.

    With `parameters` (those given to a run) every argument of the workflow must have a value.
    """
    found = list(manifest.problems)
    if not found:
        checks = Checks(manifest, parameters)
        checks.run()
        found = checks.findings or not_carried(manifest)
    return sorted(set(found), key=lambda one: (one.line, one.path))
