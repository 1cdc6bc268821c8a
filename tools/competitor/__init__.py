"""tinygrad, the competitor: its environment, and virtual cards where its drivers expect real ones.

Benches measure it, tests check the virtual cards with it. `scripts` runs in its interpreter and imports nothing of
ringup.
"""
