"""Arrays of other libraries in this process: DLPack, which hands over memory by a struct in C."""
