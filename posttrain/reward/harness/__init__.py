"""Programs that run inside of a sandbox beside the policy's code: standard library only, nothing of ours imported.

They hold no answers. What they are told on stdin is what the code is to be given; what came out is judged outside.
"""
