"""Work on its way to a card, whoever made it: queues, their memory, staging copies, points of other cards."""
