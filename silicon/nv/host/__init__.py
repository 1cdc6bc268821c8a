"""The host: channels, their pushbuffers and semaphores, and the engines that it feeds."""
