"""A Radeon that stays with the kernel's amdgpu: memory, queues and events through /dev/kfd.

The kernel starts the card, makes page tables and queue descriptors, schedules the queues of all processes and resets
them. Rings, pointers, doorbells and timelines are this process's, so streams and queues are those of `submission`.
"""
