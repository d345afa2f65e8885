"""Runs assertions on /workspace/solution.py: HumanEval's `check(candidate)`, or plain asserts.

The word that stands for success is told on stdin and printed last: code that leaves early, with whatever exit code,
does not say it. It shares this process, though, so that a policy that sets out to cheat can; `calls` and stdin cases
are the forms that it cannot.
"""

import json
import os
import runpy
import sys


def main():
    sys.path.insert(0, "/workspace")
    channel = os.dup(1)
    os.dup2(2, 1)
    names = runpy.run_path("/workspace/solution.py", run_name="solution")
    told = json.loads(sys.stdin.readline())
    exec(compile(told["tests"], "tests", "exec"), names)
    if told["entry_point"] and "check" in names:
        names["check"](names[told["entry_point"]])
    os.write(channel, told["word"].encode())


main()
