"""NVIDIA's GPU system processor (GSP): the engines that boot it, its boot arguments, and its message queues."""
