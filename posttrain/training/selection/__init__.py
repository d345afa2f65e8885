"""Selection: which samples of an update are trained on. Pure; nothing heavy.

Invariants: advantages were made before, over whole groups, and are never made again from what is left; no group gets a
member of another, and none is split in two; whether a group has spread is seen in its raw rewards, before any shaping
or price; a sample is either kept or left out under exactly one `Reason`, the first that holds in the order in which
they are declared; the same samples, settings and seed choose the same.

    config      the settings
    staleness   versions of the policy that a sample is of, against the trainer's
    select      the choice, with a reason for each that is left out
"""
