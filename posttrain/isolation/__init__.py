"""What keeps processes apart on one machine: bubblewrap, cgroups, seccomp, processes by their pid, and the small
process that starts what is kept apart (`launcher`).

The engine's pods and the sandboxes stand on it; it imports neither.
"""
