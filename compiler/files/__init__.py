"""Files on disk: the layout of GGUF weight files, and files written whole or not at all.

`compiler.tensor` and the tuning of kernels import it; it imports only `errors`.
"""
