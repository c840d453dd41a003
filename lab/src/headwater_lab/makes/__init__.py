"""Brokers of other makes: started on loopback, looked at packet by packet, and put behind proxies."""
