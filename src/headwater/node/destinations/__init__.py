"""Where a message goes: a fan-out is a list of destinations, found once for each topic."""
