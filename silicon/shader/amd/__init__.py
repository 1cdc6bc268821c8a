"""Cores of AMD's RDNA family."""
