"""Figures of one worker, where several processes are one node (node/workers)."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.metric import counter, gauge


@dataclass
class WorkerSeen:
    """`name` is its number."""

    name: str
    process: int = 0
    """Its id for the system; 0: there is none."""
    up: bool = gauge("Whether the worker takes clients.", default=False, name="worker_up")
    uptime: float = gauge("Seconds since the worker started.", default=0.0, name="worker_uptime_seconds")
    restarts: int = counter("Times that the worker ended and was started again.", name="worker_restarts")
    connections: int = gauge("Clients connected to the worker now.", name="worker_connections")
    sessions: int = gauge("Sessions at the worker now, with or without a connection.", name="worker_sessions")
    messages_received: int = counter(
        "PUBLISH packets that came to the worker, from clients and from other workers.",
        name="worker_messages_received",
    )
    messages_sent: int = counter("PUBLISH packets from the worker to clients.", name="worker_messages_sent")
    forwarded: int = counter("Messages from the worker to other workers.", name="worker_messages_forwarded")
    dropped: int = counter(
        "QoS 0 messages for other workers that found no room.",
        name="worker_forwards_dropped",
        doc="`cluster.link_buffer` is that room.",
    )
    links_up: int = gauge("Other workers that it is linked with.", name="worker_links_up")
    spool_bytes: int = gauge(
        "Bytes of QoS 1 and 2 messages that other workers have not acknowledged.", name="worker_spool_bytes"
    )
    cpu_seconds: float = counter(
        "Processor time of the worker since its start.", default=0.0, name="worker_cpu_seconds"
    )
    resident_bytes: int = gauge("Memory of the worker.", name="worker_resident_bytes")
