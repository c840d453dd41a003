"""What the clients do: each workload makes its clients, runs them, and knows when they are ready and finished."""
