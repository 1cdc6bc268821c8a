"""AMD: registers, packets and structures."""
