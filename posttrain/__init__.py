"""posttrain: post-training of language models as declared workflows."""

__version__ = "0.1.0"
