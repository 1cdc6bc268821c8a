"""Arguments of `ringup run` for the kernel `mandelbrot` of the demo: what it writes, then what it computes."""

ARGUMENTS = ["--arg", "zero:4K", "--arg", "256", "--arg", "50", "--arg", "f32:1", "--arg", "f32:1", "--arg", "f32:1"]
