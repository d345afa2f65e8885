"""Sandboxes: code that nobody has read runs in one, apart from the machine and from each other.

driver = open_driver("bubblewrap")
async with driver.sandbox(SandboxSpec(memory="512Mi")) as sandbox:
    result = await sandbox.exec(["python3", "-c", "print(6 * 7)"], timeout=5)
await driver.close()
"""

from posttrain.sandbox.drivers import DriverSettings, open_driver
from posttrain.sandbox.protocol import Driver, Outcome, Process, Result, Sandbox, SandboxGone, Snapshot
from posttrain.sandbox.spec import WORKSPACE, Network, NetworkPolicy, SandboxSpec, spec_from

__all__ = [
    "WORKSPACE", "Driver", "DriverSettings", "Network", "NetworkPolicy", "Outcome", "Process", "Result", "Sandbox",
    "SandboxGone", "SandboxSpec", "Snapshot", "open_driver", "spec_from",
]  # fmt: skip
