"""The lake: Delta tables whose files executors write and whose commits say how far of which store they contain."""
