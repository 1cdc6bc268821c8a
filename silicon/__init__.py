"""Virtual cards: device models written from public documents, strict enough that a driver which works here has obeyed them."""
