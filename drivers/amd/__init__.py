"""AMD's Radeon cards: one class a hardware block, tables for what differs by IP version."""
