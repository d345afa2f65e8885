"""One file for each way to judge. A verifier answers a question, or says why it cannot; see `base`."""
