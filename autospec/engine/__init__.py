"""Everything that knows llama.cpp: finding it, its flags, its files, its output."""
