"""Sandboxes in a cluster: SandboxClaims of kubernetes-sigs/agent-sandbox, pods under gVisor.

`manifests` says what the cluster is to make of a spec; `driver` claims sandboxes and stops them; `remote` is one
of them; `process` a command in it, over the runtime (sandboxd) that the sandbox's image has to carry.
"""

from posttrain.sandbox.kubernetes.driver import ClusterSettings, KubernetesDriver

__all__ = ["ClusterSettings", "KubernetesDriver"]
