"""The TaskServer: work that is handed out by leases and ends exactly once. See docs/tasks.md.

model.py      outcomes and the plain data that decisions look at
decisions.py  who gets the next lease, what an outcome does to a task: pure
tables.py     the database: SQLite (WAL) or PostgreSQL
store.py      each operation as one transaction's part; reading.py: what only reads
server.py     operations that are awaited, waits (waits.py), the sweep, metrics (metrics.py)
service.py    the HTTP service; api.py its bodies; client.py and worker.py the other side
"""
