"""What a demonstration needs: simulated devices, and a node in a process of its own."""
