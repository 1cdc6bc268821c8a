"""The command line: parser, the CARD argument, examples, completion, reports of failures.

Imported by `ringup.tools.command_line.cli` and by every command.
"""
