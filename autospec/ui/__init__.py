"""What a person sees: tables, plots, progress. It draws plain data and decides nothing."""
