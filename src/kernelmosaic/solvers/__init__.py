"""Arrays in, arrays out: the optimisers behind every machine."""
