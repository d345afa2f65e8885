"""Specs: defaults, digests, and mistakes that are told before anything starts."""

from __future__ import annotations

import pytest

from posttrain.errors import UserError
from posttrain.sandbox import Network, SandboxSpec, spec_from


def test_defaults_are_the_guides() -> None:
    spec = SandboxSpec()
    assert (spec.cpu, spec.memory_bytes, spec.wall_seconds) == (4.0, 8 << 30, 600.0)
    assert spec.network.mode is Network.none


def test_equal_specs_are_one_kind_and_others_are_not() -> None:
    assert spec_from({"memory": "1Gi"}).digest == SandboxSpec(memory="1Gi").digest
    different = [{}, {"cpu": 1}, {"environment": {"A": "1"}}, {"network": {"mode": "gateway"}}, {"user": 0}]
    assert len({spec_from(each).digest for each in different}) == len(different)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cores": 2}, "sandbox.cores: unknown key"),
        ({"network": {"modes": "none"}}, "sandbox.network.modes: unknown key"),
        ({"network": {"mode": "open"}}, "is not one of none, gateway, allow"),
        ({"network": {"mode": "allow"}}, "network.allow: does not fit"),
        ({"network": {"allow": ["a:1"]}}, "network.allow: does not fit"),
        ({"network": {"mode": "allow", "allow": ["example.org"]}}, "is no address (got 'example.org')"),
        ({"network": {"mode": "allow", "allow": ["example.org:0"]}}, "is no address"),
        ({"network": {"mode": "allow", "allow": ["a.*.org:1"]}}, "is no address"),
        ({"memory": "much"}, "memory: is no quantity"),
        ({"memory": "1Mi"}, "memory: must be at least"),
        ({"cpu": 0}, "cpu: must be at least"),
        ({"pids": 1}, "pids: must be at least"),
        ({"wall_seconds": "soon"}, "is not a number"),
        ({"files": {"../x": "/etc/passwd"}}, "files: leaves the workspace"),
        ({"collect": ["/etc/passwd"]}, "collect: leaves the workspace"),
        ({"mounts": {"data": "/srv"}}, "mounts: is no path"),
        ({"mounts": {"/a/../b": "/srv"}}, "mounts: is no path"),
        ({"environment": {"A-B": "1"}}, "environment: is no name"),
    ],
)
def test_mistakes_are_named(given: dict, said: str) -> None:
    with pytest.raises(UserError) as told:
        spec_from(given)
    assert said in str(told.value) and "\n" not in str(told.value)
