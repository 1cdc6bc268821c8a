"""ringup: bring a GPU up from user space and put its queues in your hands."""

__version__ = "0.1.0"
