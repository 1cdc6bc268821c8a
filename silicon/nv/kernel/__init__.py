"""NVIDIA's kernel driver as a process sees it: the device nodes of its modules over the resource manager of a card."""
