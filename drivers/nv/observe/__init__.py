"""Observing an NVIDIA card: what its channels are fetching, post-mortems."""
