"""The sampler: groups of trajectories of the policy as it is now, into the stream `experience`, each exactly once."""
