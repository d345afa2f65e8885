"""The process that starts sandboxes and everything in them (`server`). It imports the standard library alone,
so that it is small and its forks are cheap."""
