"""Which program: the kernel machines, each with its targets."""
