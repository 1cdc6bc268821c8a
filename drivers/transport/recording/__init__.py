"""Recording a driver's accesses as a transcript, and replaying a transcript as a card.

The transport `replay` is an entry point. Tools import the recorder.
"""
