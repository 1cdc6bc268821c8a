"""Work on its way to an NVIDIA card, on either path: channels as queues, their memory, how they are made."""
