"""What keeps processes apart on one machine: bubblewrap, cgroups, seccomp, processes by their pid.

The engine's pods and the sandboxes stand on it; it knows of neither.
"""
