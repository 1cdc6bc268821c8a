"""Numbers that the tensor language is made of. This room knows no tensors."""
