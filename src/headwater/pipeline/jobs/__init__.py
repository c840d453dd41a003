"""What fills the tables: a streaming query for bronze, and steps for those behind it, each of which can be killed and
done again at any moment."""
