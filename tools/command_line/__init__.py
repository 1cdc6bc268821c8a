"""The command line itself: parser, the CARD argument, examples, completion, how a command ends that failed.

Imported by `ringup.tools.command_line.cli` and by every command.
"""
