"""The `ringup` command. The only place that prints and reads the environment; nothing imports it."""
