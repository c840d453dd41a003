import select

class Passages:
    def __init__(self, epoll: select.epoll, enough: int, burst: int, /) -> None: ...
    def open(self, from_fd: int, to_fd: int, size: int, skip: int, types: int, is_client: bool, /) -> None:
        """What comes from the one goes to the other. `size`: bytes of a read, which doubles when one is full. `skip`:
        bytes until the next packet begins; less than 0: nothing is looked at. `types`: bits of packet types that
        matter; of a client, so does a PUBLISH with the retain flag."""

    def close(self, from_fd: int, /) -> tuple[int, int, int] | None:
        """Size, skip, and how many packets have begun since it was opened. None: there is no passage."""

    def serve(
        self, most: int, room: int, /
    ) -> tuple[int, int, int, int, int, int, list[tuple[int, int, int, bytes]] | None]:
        """Serve so many sockets that are ready, once, without waiting. When more than `room` bytes are left to the
        caller, reads are small.

        Returns how many sockets were ready; of reads that were looked at, how many there were, how many found less
        than `enough` packets, how many `burst` or more; bytes from clients and from brokers; and what is left to the
        caller (passages.py), None if nothing is."""
