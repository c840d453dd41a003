"""The settings of one listener: a table `[[listeners]]` of the configuration file, with `[listeners.tls]` in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headwater.node.settings import Settings
from headwater.wire.primitives import UINT16_MAX

ALL_ADDRESSES = "`*` for all, `0.0.0.0` for all IPv4"
ID_PREFIX = "^([^$\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,63})?$"


class TlsSettings(Settings):
    certificate: str = Field(description="File with the server's certificate and those between it and the root (PEM).")
    key: str = Field(description="File with the certificate's private key (PEM, without a passphrase).")
    minimum_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Oldest version of TLS accepted.")
    ciphers: str = Field(default="", description="Ciphers for TLS 1.2 as OpenSSL writes them; empty: the modern ones.")
    client_certificates: Literal["none", "optional", "required"] = Field(
        default="none", description="Whether clients are asked for a certificate, and must have one."
    )
    ca: str = Field(
        default="",
        description="File with the authorities that may have signed clients' certificates (PEM), or a folder of them "
        "as `openssl rehash` makes it. Those between the root and our own certificate are sent with it, too.",
    )
    crl: str = Field(
        default="",
        description="File with the lists of revoked certificates (PEM) of all authorities between clients and the "
        "root, the root included.",
    )
    username: Literal["cn", "san", "subject", "none"] = Field(
        default="cn",
        description="What of a client's certificate becomes its user name, in place of the one in CONNECT: the "
        "subject's common name, the first alternative name (DNS, e-mail, URI), the whole subject (such as "
        "`CN=pump,O=Works`), nothing.",
    )

    @model_validator(mode="after")
    def _clients_are_checked_against_something(self) -> TlsSettings:
        if self.client_certificates != "none" and not self.ca:
            raise ValueError("client_certificates need `ca`, the authorities that may have signed them")
        if self.client_certificates == "none" and self.crl:
            raise ValueError("`crl` is for client_certificates, which are not asked for")
        return self


class ListenerSettings(Settings):
    host: str = Field(default="localhost", description=f"Name or address to listen on; {ALL_ADDRESSES}.")
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
    max_qos: Literal[0, 1, 2] | None = Field(
        default=None, description="Highest QoS that clients of this listener may publish with; unset: as for all."
    )
    topic_alias_maximum: int | None = Field(
        default=None,
        ge=0,
        le=UINT16_MAX,
        description="Topic aliases that a client may use towards us; unset: as for all.",
    )
    allow_empty_client_id: bool | None = Field(
        default=None, description="Whether clients without an id are given one; unset: as for all."
    )
    auto_id_prefix: str | None = Field(
        default=None, pattern=ID_PREFIX, description="What such ids begin with; unset: as for all."
    )
    use_passwords: bool = Field(
        default=True,
        description="Whether passwords and tokens are asked for (`access`); if not, client-supplied names are trusted, "
        "and `allow_anonymous` decides who may come in.",
    )
    use_rules: bool = Field(
        default=True,
        description="Whether the rules of `access` hold for the clients of this listener; if not, they may do "
        "everything.",
    )
    username_as_client_id: bool = Field(
        default=False,
        description="A client's user name is its id, whatever it says, so that nobody can take over another's session; "
        "who has no user name is refused.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> ListenerSettings:
        if bool(self.unix) == (self.port is not None):
            raise ValueError("a listener has a `port`, or is a `unix` socket")
        if self.unix and self.tls is not None:
            raise ValueError("TLS on a Unix socket is not supported")
        return self
