"""The coordinator: who is there, which version is the one to serve, and who is to do what about it. See docs/etha.md.

state.py    what is known; what follows from it alone (who may take traffic, who waits for what)
machine.py  what each event changes: pure
orders.py   what each member shall do, and what people are shown: pure
store.py    the state on disk; server.py: events in order, long polls, plans; engines.py: vLLM's routes
service.py  the HTTP service; client.py: its typed client; metrics.py
"""
