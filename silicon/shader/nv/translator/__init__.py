"""The fast engine: a program becomes host vector code, one vector of 32 lanes for each register."""
