"""Links between nodes of a cluster: sockets, spools and runs around headwater.peering."""
