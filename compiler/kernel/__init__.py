"""Kernels: what one launch computes, its axes by role, and its lowering to machine IR."""
