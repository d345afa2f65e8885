"""The coordinator: who is there, which version is the one to serve, and who is to do what about it. See docs/etha.md.

state.py     what is known, and who may be asked; events.py: what can happen
machine.py   what each event changes; settling.py: what follows from what is known; both pure
orders.py    what each member shall do; view.py: what people are shown; both read from the state
store.py     the state on disk; server.py: events in order, long polls; planning.py: plans; engines.py: vLLM's routes
service.py   the HTTP service; client.py: its typed client; metrics.py
"""
