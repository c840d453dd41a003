"""Rules for the quality of silver and gold: what is expected of a row, and what happens to one that fails."""
