"""What a machine lacks is skipped by name; generated examples are the same in every run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no failure, and one that cannot be repeated is no use.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("suite")

LACKING = {
    "gpu": (lambda: Path("/dev/nvidiactl").exists(), "no NVIDIA device"),
    "cluster": (lambda: bool(os.environ.get("KUBECONFIG")), "KUBECONFIG names no cluster"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for mark, (present, why) in LACKING.items():
        if not present():
            for item in items:
                if item.get_closest_marker(mark):
                    item.add_marker(pytest.mark.skip(reason=why))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What shares a costly fixture shares a worker; a pytest and an xdist that do not fit lose that silently."""
    if getattr(session.config.option, "loadgroup", False):  # which xdist sets in its workers
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid.rpartition("]")[2]:
                raise pytest.UsageError(f"{item.nodeid}: --dist loadgroup does not keep its group together")
