"""The overlay `production` against a real API server: everything in it is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, kubectl

pytestmark = pytest.mark.cluster

NAMESPACE = "posttrain-test-production"


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """It, in a namespace of the test's own."""
    up = "../" * (len(tmp_path.resolve().parts) - 1)
    base = f"{up}{(ROOT / 'k8s/overlays/production').relative_to('/')}"
    (tmp_path / "kustomization.yaml").write_text(f"namespace: {NAMESPACE}\nresources: [{base}]\n")
    yield tmp_path
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def test_it_can_be_applied_and_applied_again(overlay: Path) -> None:
    first = kubectl("apply", "-k", str(overlay)).stdout.splitlines()
    again = kubectl("apply", "-k", str(overlay)).stdout.splitlines()
    assert len(first) == len(again) > 15
    assert all(line.endswith((" unchanged", " configured")) for line in again)
    groups = kubectl("-n", NAMESPACE, "get", "rolebindings", "-o", "jsonpath={.items[*].subjects[*].name}").stdout
    assert "posttrain-submitters" in groups
