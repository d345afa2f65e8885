"""The command line. One module per group of commands; this one holds the table and the way out.

Invariants: a command's module is imported when the command is used, so that `posttrain --help`
is immediate; a mistake of the user's is one line on stderr and exit code 2; only this package,
of all under `posttrain/`, knows of `workflows/`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from posttrain.errors import UserError

# command -> (module, panel, one line). The order is the order of use.
COMMANDS = {
    "run": ("execute", "Run", "Run a route on this machine, with a live view."),
    "resume": ("control", "Run", "Go on with a run that waits or was interrupted; nothing that ended runs again."),
    "demo": ("demo", "Run", "Post-train a small real model and show what it gained."),
    "serve": ("serve", "Run", "Serve the model that a run released, and say how to talk to it."),
    "gateway": ("gateway", "Run", "Every vendor's interface in front of vLLM; each run's trajectory is kept."),
    "schedule": ("schedule", "Run", "Cron workflows: runs that start by the clock."),
    "config": ("define", "Define", "Print a route's whole configuration, ready to be edited."),
    "validate": ("define", "Define", "Check configuration and references of a whole route; start nothing."),
    "render": ("define", "Define", "Print the Argo manifest of a route."),
    "lint": ("define", "Define", "Check a manifest by Argo's rules: keys, types, references."),
    "submit": ("submit", "Cluster", "Submit a route or a manifest to Argo Workflows."),
    "list": ("observe", "Observe", "List the runs of a workspace."),
    "get": ("observe", "Observe", "Show one run: its steps, their states and times."),
    "watch": ("observe", "Observe", "Follow a run until it ends."),
    "logs": ("observe", "Observe", "Print the log of a run, or of one of its steps."),
    "report": ("report", "Observe", "Write one HTML page about a run."),
    "stream": ("stream", "Observe", "Streams: a Lance table as lake and queue, by hand."),
    "tasks": ("tasks", "Rollout", "The TaskServer: start it, look at it, cancel and drain."),
    "etha": ("etha", "Models", "Weights into serving engines: coordinator, push, status, verify, roll back."),
    "convert": ("convert", "Models", "Convert between vendors' interfaces, and list what that loses."),
    "trace": ("trace", "Models", "Traces of trajectories: show, compare, run again."),
    "reward": ("reward", "Rollout", "The reward service: start it, ask it, compute its verdicts again."),
    "env": ("env", "Rollout", "Environments: tasks with tools and a verifier, to look at and to try."),
    "stop": ("control", "Control", "Stop a run; its exit handler still runs."),
    "retry": ("control", "Control", "Run the failed steps of a run again, with what follows them."),
    "rerun": ("rerun", "Control", "Run one step again from its record and compare what comes out."),
    "conformance": ("conformance", "Control", "Hold the embedded engine against Argo, manifest by manifest."),
    "doctor": ("doctor", "Control", "Say what will not work on this machine, and why."),
}


class _Deferred(TyperCommand):
    """Stands for a command in the help; becomes the real one when it is called."""

    def __init__(self, name: str, module: str, panel: str, summary: str):
        super().__init__(name, help=summary, rich_help_panel=panel)
        self._module = module

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        command = typer.main.get_command(import_module(f"posttrain.cli.{self._module}").app)
        if isinstance(command, TyperGroup) and self.name != self._module:  # else the group itself is the command
            assert self.name is not None
            command = command.commands[self.name]
        return command.make_context(info_name, args, parent=parent, **extra)


class _Commands(TyperGroup):
    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        for name, (module, panel, summary) in COMMANDS.items():
            self.add_command(_Deferred(name, module, panel, summary))


app = typer.Typer(
    cls=_Commands,
    name="posttrain",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _posttrain() -> None:
    """Post-training of language models as declared workflows: one definition, a laptop or a cluster."""


def main() -> None:
    """The console script `posttrain`."""
    try:
        app(prog_name="posttrain")
    except UserError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
    except BrokenPipeError:  # `posttrain logs RUN | head`
        sys.stderr.close()
        sys.exit(0)
