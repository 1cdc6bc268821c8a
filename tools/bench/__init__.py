"""The benchmarks: each measures ringup and its peer side by side in one run, and states its goal. Never a timed test."""
