"""What weight files hold, made tensors: ggml's packed blocks, and the tensors that a PyTorch file describes."""
