"""Where others find the tables: catalogs that they are registered in, and Iceberg beside Delta."""
