"""Packets, rings, timelines, streams and programs: bytes in, words out. No device objects here."""
