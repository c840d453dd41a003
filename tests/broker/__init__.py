"""Wire scenarios: exact bytes on a real socket, against our own broker or any other (`--target host:port`)."""
