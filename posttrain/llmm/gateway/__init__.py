"""The gateway: every vendor's interface in front of vLLM, by token ids, with each run's trajectory kept as it went.

settings      what a user may set
app           the HTTP server: dialects' routes, trajectories, control; `serve` runs it
turn          one call of the model: request -> ids -> engine -> deltas -> answer
engine        vLLM over HTTP; `replicas` chooses one, `versions` chooses the weights
trajectories  keys that name trajectories, their journal, and the end of each in the stream exactly once
limits        per key and for the whole gateway
telemetry     metrics, spans, one line of log for each request
"""
