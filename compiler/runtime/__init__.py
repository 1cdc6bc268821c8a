"""Runs compiled graphs on a card: memory, launches, kept streams. No other part of the compiler uses drivers."""
