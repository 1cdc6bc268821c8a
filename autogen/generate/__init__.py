"""Reads public headers and writes the fact modules; never imported by a driver."""
