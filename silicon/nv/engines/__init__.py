"""The engines that the host feeds with methods: copies, inline upload, compute, 3D and 2D state, macros."""
