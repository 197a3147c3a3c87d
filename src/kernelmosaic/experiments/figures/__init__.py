"""Pictures of the papers, drawn again from the run's seed and data; kept in the run folder once drawn."""
