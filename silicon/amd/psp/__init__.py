"""The security processor: boot loader, command ring, and its checks of images.

The board imports it to sign its firmware.
"""
