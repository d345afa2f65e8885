"""The embedded engine as the command line uses it: what stands for images and claims, and how a run is followed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from posttrain.cli.checks import problems_of
from posttrain.cli.follow import Follower, following, outcome
from posttrain.contract.record import ROOT
from posttrain.engine import Engine, EngineSettings
from posttrain.errors import UserError
from workflows.definition import Definition
from workflows.profile import Profile, load_profile

JSON = dict[str, Any]

INTERRUPTED = 130


class Embedded:
    """The engine of one workspace. `profile` says which images and claims its manifests name."""

    def __init__(self, workspace: Path, profile: Profile):
        self.workspace, self.profile = workspace, profile
        self.engine = engine_of(workspace, profile)

    def run(self, definition: Definition, name: str, *, resume: bool = False) -> int:
        """Install what is missing, check, render and run to the end; the exit code.

        With `resume` a run of that name is gone on with.
        """
        self.workspace.mkdir(parents=True, exist_ok=True)
        install(self.profile)
        if resume and stored_workflow(self.workspace, name):
            return self.resume(name)
        for problem in problems_of(definition, self.workspace):
            raise problem
        return self.start(definition.render(name), name)

    def start(self, manifest: JSON, name: str) -> int:
        self.engine.submit(manifest)
        return self.resume(name)

    def resume(self, name: str) -> int:
        """Drive the run `name` to its end, drawing it; the exit code."""
        follower = Follower(name, self.workspace / "runs" / name)
        try:
            with following(follower, lambda: self.engine.get(name)):
                self.engine.run(name)
        except KeyboardInterrupt:
            print(f"\ninterrupted; go on with: posttrain resume {name} -w {self.workspace}", file=sys.stderr)
            return INTERRUPTED
        return outcome(self.engine.get(name), name, lambda step: self.engine.logs(name, step))


def engine_of(workspace: Path, profile: Profile | None = None) -> Engine:
    """The engine whose runs lie in `workspace`. The checkout stands for what the images hold."""
    profile = profile or load_profile("laptop")
    return Engine(
        workspace,
        settings=EngineSettings(
            images={image: {profile.project: str(ROOT)} for image in profile.images.values()},
            claims={v.claim: str(workspace) for v in profile.volumes.values() if v.claim},
        ),
    )


def stored_workflow(workspace: Path, run: str) -> JSON | None:
    """The workflow object of `run`, or None where the engine of this workspace does not know it."""
    try:
        return engine_of(workspace).get(run)
    except UserError:
        return None


def install(profile: Profile) -> None:
    """Install the environments that the profile's steps run in, where they are not there yet."""
    for name in sorted({"control", *(profile.environments.get(e, e) for e in ("train", "rollout"))}):
        done = subprocess.run([ROOT / "envs" / "install", name])
        if done.returncode:
            raise UserError("could not be installed; see its message above", field=f"environment {name}")
