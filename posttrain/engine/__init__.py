"""The embedded engine: runs a built Argo Workflow manifest on one machine. See docs/engine.md."""
