"""How bytes get from a source's memory into a destination's: shm, process_group, cuda_ipc, all behind base.py."""
