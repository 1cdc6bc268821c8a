"""Work on its way to the card: hardware queues, signals, staging copies.

Imported by what starts and watches a card; imports the blocks and the board.
"""
