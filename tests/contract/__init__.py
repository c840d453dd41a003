"""One suite over every implementation of a seam."""
