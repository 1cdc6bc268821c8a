"""The `ringup` command; the only place that prints or reads the environment."""
