"""Files on disk: mapped files, the layouts of weight files (safetensors, GGUF, zip archives), a reader of pickles that
executes nothing, and files written whole or not at all.

`compiler.tensor` and the tuning of kernels import it; it imports only `errors`.
"""
