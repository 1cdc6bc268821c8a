"""Page tables of the GPU's address spaces, written by the driver itself. Imports no other room."""
