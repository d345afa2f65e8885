"""Manifests: read, checked against Argo's own types, and looked up by what they define."""

from __future__ import annotations

from posttrain.engine.manifest.findings import Finding
from posttrain.engine.manifest.objects import Objects
from posttrain.engine.manifest.reading import Manifest, load, parse

__all__ = ["Finding", "Manifest", "Objects", "load", "parse"]
