"""Operations that are made of others alone, in the words of PyTorch and NumPy. `tensor` binds them as methods."""
