"""Profiles that extend others, and what they do to pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.errors import UserError
from workflows.definition import define
from workflows.profile import load_profile


def written(directory: Path, name: str, text: str) -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def test_a_profile_is_laid_over_the_one_that_it_extends(tmp_path: Path) -> None:
    written(tmp_path, "site.yaml", "extends: cluster\nimages: {default: 'registry.example/posttrain:2'}\n")
    mine = load_profile(written(tmp_path, "mine.yaml", "extends: site.yaml\nsteps: {sft: {gpu: 8}}\n"))
    base = load_profile("cluster")
    assert mine.images == {"default": "registry.example/posttrain:2"}
    assert (mine.steps["sft"].gpu, mine.steps["sft"].cpu) == (8, base.steps["sft"].cpu)
    assert mine.volumes == base.volumes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: nowhere", r"mine.yaml: extends: no such profile \(got 'nowhere'\); known: .*cluster"),
        ("extends: mine.yaml", "mine.yaml: extends: leads back to itself"),
        ("extends: cluster\nvolume: {}", "profile.volume: unknown key"),
    ],
)
def test_a_wrong_profile_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_profile(written(tmp_path, "mine.yaml", text))


@pytest.mark.parametrize("profile", ["cluster", "dev"])
def test_steps_are_restricted_and_only_installing_writes_environments(profile: str) -> None:
    spec = define("sft", profile).render("x")["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for template in spec["templates"]:
        if "container" in template:
            container = template["container"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            installs = template["name"].startswith("install-")
            assert mounts["environments"].get("readOnly", False) is not installs
