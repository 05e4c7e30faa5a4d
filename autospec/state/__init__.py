"""What outlives the daemon: one SQLite file of documents, whatever they mean."""
