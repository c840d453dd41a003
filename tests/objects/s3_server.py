"""An S3 server as a process of its own, which the lab has, too."""

from __future__ import annotations

from headwater_lab.s3_server import S3Server, s3_server

__all__ = ["S3Server", "s3_server"]
