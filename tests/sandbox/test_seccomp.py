"""The filter: the list is as its maintainers ship it, and what it says holds."""

from __future__ import annotations

import hashlib
import json
from importlib import resources

import pytest

from posttrain.isolation import seccomp

FILES = resources.files("posttrain.isolation")


def test_the_list_is_unchanged() -> None:
    digest = hashlib.sha256(FILES.joinpath("profile.json").read_bytes()).hexdigest()
    assert digest in FILES.joinpath("profile.md").read_text()


def test_what_is_withheld_is_in_the_list_or_unknown_to_it() -> None:
    """So that a newer list which refuses by itself is noticed, and the entry here can go."""
    rules = json.loads(FILES.joinpath("profile.json").read_text())["syscalls"]
    allowing = [rule for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("includes")]
    free = {name for rule in allowing for name in rule["names"]}
    refused_anyway = {"io_uring_enter", "io_uring_register", "io_uring_setup", "bpf", "perf_event_open", "kcmp",
                      "open_by_handle_at", "quotactl", "quotactl_fd", "chroot", "userfaultfd",
                      "add_key", "request_key"}  # fmt: skip
    assert free >= seccomp.WITHHELD - refused_anyway


def test_the_program_is_one_for_this_machine() -> None:
    if seccomp.unavailable():
        pytest.skip(seccomp.unavailable())
    program = seccomp.program()
    assert len(program) % 8 == 0 and 100 < len(program) // 8 < 4096  # the kernel's limit of instructions
