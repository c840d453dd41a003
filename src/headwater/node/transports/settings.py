"""The settings of one listener: a table `[[listeners]]` of the configuration file, with `[listeners.tls]` in it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TlsSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: str = Field(description="File with the server's certificate and those between it and the root (PEM).")
    key: str = Field(description="File with the certificate's private key (PEM, without a passphrase).")
    minimum_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Oldest version of TLS accepted.")
    ciphers: str = Field(default="", description="Ciphers for TLS 1.2 as OpenSSL writes them; empty: the modern ones.")
    client_certificates: Literal["none", "optional", "required"] = Field(
        default="none", description="Whether clients are asked for a certificate, and must have one."
    )
    ca: str = Field(
        default="", description="File with the authorities that may have signed clients' certificates (PEM)."
    )
    crl: str = Field(default="", description="File with those authorities' lists of revoked certificates (PEM).")
    username: Literal["cn", "san", "none"] = Field(
        default="cn",
        description="What of a client's certificate becomes its user name, in place of the one in CONNECT: the "
        "subject's common name, the first alternative name (DNS, e-mail, URI), nothing.",
    )

    @model_validator(mode="after")
    def _clients_are_checked_against_something(self) -> TlsSettings:
        if self.client_certificates != "none" and not self.ca:
            raise ValueError("client_certificates need `ca`, the authorities that may have signed them")
        if self.client_certificates == "none" and (self.ca or self.crl):
            raise ValueError("`ca` and `crl` are for client_certificates, which are not asked for")
        return self


class ListenerSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(
        default="localhost", description="Name or address to listen on; `0.0.0.0` for all IPv4, `::` for all."
    )
    port: int | None = Field(default=None, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    unix: str = Field(default="", description="Path of a Unix socket, in place of host and port.")
    unix_mode: int = Field(
        default=0o660, ge=0, le=0o777, description="Who may connect to the Unix socket, such as `0o660`."
    )
    protocol: Literal["mqtt", "websocket"] = Field(
        default="mqtt", description="MQTT directly, or in binary frames of WebSocket."
    )
    websocket_path: str = Field(
        default="/mqtt", pattern="^/", description="Path of WebSocket requests; others get 404. `/` takes all."
    )
    websocket_origins: list[str] = Field(
        default=[],
        description="Web sites whose pages may connect, such as `https://example.org`; empty: all. "
        "Programs that are no browsers send no origin, and are let in.",
    )
    tls: TlsSettings | None = Field(default=None, description="A table of its own, below; without it there is no TLS.")
    proxy_protocol: bool = Field(
        default=False, description="Every connection begins with a header of the PROXY protocol, version 2."
    )
    allow_anonymous: bool | None = Field(
        default=None, description="As the setting of the same name for all listeners, which is used if unset."
    )
    max_connections: int | None = Field(
        default=None, ge=1, description="Connections to this listener at a time; more are closed at once."
    )

    @model_validator(mode="after")
    def _one_place(self) -> ListenerSettings:
        if bool(self.unix) == (self.port is not None):
            raise ValueError("a listener has a `port`, or is a `unix` socket")
        if self.unix and self.tls is not None:
            raise ValueError("TLS on a Unix socket is not supported")
        return self
