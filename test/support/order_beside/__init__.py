"""Our bring-up beside that of other drivers: how it is compared, and NVIDIA's cards."""
