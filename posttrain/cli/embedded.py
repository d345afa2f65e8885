"""The embedded engine as the command line uses it: what stands for images and claims, and how a run is followed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posttrain.argo.status import named
from posttrain.cli.checks import problems_of
from posttrain.cli.follow import Follower, following, outcome
from posttrain.contract.record import ROOT
from posttrain.engine import Engine, EngineSettings, Manifest, load
from posttrain.errors import UserError
from workflows.definition import Definition
from workflows.profile import Profile, load_profile

JSON = dict[str, Any]

INTERRUPTED = 130

# What a user sets once in the shell: tracking server, store, hub, the way out. On a cluster the profile says it.
INHERITED = (
    "POSTTRAIN_TRACKING",
    *(f"MLFLOW_{name}" for name in ("TRACKING_URI", "EXPERIMENT_NAME")),
    *(f"MLFLOW_TRACKING_{name}" for name in ("USERNAME", "PASSWORD", "TOKEN", "INSECURE_TLS", "SERVER_CERT_PATH")),
    *(f"AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION")),
    *(f"AWS_{name}" for name in ("ENDPOINT_URL", "ALLOW_HTTP")),
    *("HF_TOKEN", "HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)


class Embedded:
    """The engine of one workspace. `profile` says which images and claims its manifests name."""

    def __init__(self, workspace: Path, profile: Profile):
        self.workspace, self.profile = workspace, profile
        self.engine = engine_of(workspace, profile)

    def run(self, definition: Definition, name: str) -> int:
        """Install what is missing, check, render, and run to the end; the exit code."""
        self.workspace.mkdir(parents=True, exist_ok=True)
        install(self.profile)
        for problem in problems_of(definition, self.workspace):
            raise problem
        return self.start(load(definition.render(name)))

    def start(self, manifest: Manifest, parameters: dict[str, str] | None = None, name: str | None = None) -> int:
        return self.drive(self.engine.submit(manifest, parameters, name))

    def drive(self, name: str) -> int:
        """Drive the run `name` to its end, drawing it; the exit code. Interrupted, it can be driven again."""
        follower = Follower(name, self.workspace / "runs" / name)
        try:
            with following(follower, lambda: self.engine.get(name)):
                self.engine.run(name)
        except KeyboardInterrupt:
            where = f"{name} -w {self.workspace}"
            print(
                "\ninterrupted; steps that run go on in the background."
                f"\ngo on with:  posttrain resume {where}\nor end them: posttrain stop {where}",
                file=sys.stderr,
            )
            return INTERRUPTED
        return outcome(self.engine.get(name), name, lambda step: step_logs(self.engine, name, step))


def engine_of(workspace: Path, profile: Profile | None = None) -> Engine:
    """The engine whose runs lie in `workspace`. The checkout stands for what the images hold."""
    profile = profile or load_profile("laptop")
    installed = str(environments())
    roots = {profile.project: str(ROOT), installed: installed}  # named, since a pod does not see the host's /tmp
    return Engine(
        workspace,
        settings=EngineSettings(
            images={image: roots for image in profile.images.values()},
            claims={volume.claim: str(workspace) for volume in profile.volumes.values() if volume.claim},
            environment={"POSTTRAIN_ENVS": installed},
            inherit=INHERITED,
        ),
    )


def step_logs(engine: Engine, run: str, step: str | None = None, follow: bool = False) -> Iterator[tuple[str, str]]:
    """(step, line) of what a step's attempts wrote, or every step's. UserError where there is no such step."""
    wanted = named(engine.get(run), step)
    yield from ((name, line) for name, line in engine.logs(run, follow=follow) if wanted(name))


def environments() -> Path:
    """Where envs/install puts environments: the rule of envs/paths.sh."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("POSTTRAIN_ENVS") or cache / "posttrain" / "envs").absolute()


def install(profile: Profile) -> None:
    """Install the environments that the profile's steps run in, where they are not there yet."""
    for name in sorted({"control", *(profile.environments.get(e, e) for e in ("train", "rollout"))}):
        done = subprocess.run([ROOT / "envs" / "install", name], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise UserError(done.stderr.strip().splitlines()[-1], field=f"environment {name}")
