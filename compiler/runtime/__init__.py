"""Compiled graphs on a card: memory, launches, kept streams. The only part of the compiler that knows of drivers."""
