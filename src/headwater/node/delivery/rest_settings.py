"""The settings of REST over the delivery store: the table `[rest]` of the configuration."""

from __future__ import annotations

from typing import Final

from pydantic import Field, SecretStr, model_validator

from headwater.node.web_settings import WebSettings

SHORTEST_TOKEN: Final = 16


class RestSettings(WebSettings):
    """REST over the delivery store."""

    enabled: bool = Field(
        default=False, description="Whether the delivery store is served by REST (docs/rest.md); it needs `store`."
    )
    host: str = Field(default="localhost", description="Name or address that it listens on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Its TCP port; 0 takes a free one.")
    certificate: str = Field(
        default="", description="File with the certificate and those between it and the root (PEM); empty: plain HTTP."
    )
    key: str = Field(default="", description="File with the certificate's private key (PEM, without a passphrase).")
    allow_anonymous: bool | None = Field(
        default=None, description="As the setting of the same name for all listeners, which is used if unset."
    )
    token: SecretStr = Field(
        default=SecretStr(""),
        description="Whoever shows it (`Authorization: Bearer …`) may read and publish everything, whatever `access` "
        f"says; at least {SHORTEST_TOKEN} characters. Empty: there is no such token.",
    )
    token_file: str = Field(default="", description="A file with the token, instead of `token`; read at the start.")
    peer_token: SecretStr = Field(
        default=SecretStr(""),
        description="What this node shows to the REST of other nodes of its edge when it answers for them: their "
        "`token`, or a JWT that may read everything. Only to members of a cluster that has a `secret` or `tls`, and "
        "never without TLS if this node's REST has it. Empty: it asks without.",
    )
    peer_token_file: str = Field(default="", description="A file with it, instead of `peer_token`; read at the start.")
    peer_ca: str = Field(
        default="",
        description="File with the authorities that may have signed the certificates of those nodes (PEM); empty: the "
        "system's.",
    )
    max_limit: int = Field(
        default=10_000, ge=1, le=100_000, description="Messages on a page of JSON; a larger `limit` is refused (422)."
    )
    max_tails: int = Field(
        default=32, ge=0, description="Live tails (server-sent events) at a time; one more is refused (429)."
    )
    max_streams: int = Field(
        default=48, ge=1, description="Streams (lines of JSON, CSV, Arrow) and tails at a time; one more gets 429."
    )
    max_streams_per_address: int = Field(default=32, ge=1, description="The same for one address (of IPv6: a /64).")
    max_answer_memory: int = Field(
        default=128 << 20,
        ge=1024,
        description="Bytes of answers, and of what they are made from, that are not read by their callers; above, no "
        "more are made until there is room, and who has read nothing for two seconds is cut off.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RestSettings:
        secret = self.token.get_secret_value()
        if secret and self.token_file:
            raise ValueError("either `token` or `token_file`")
        if self.peer_token.get_secret_value() and self.peer_token_file:
            raise ValueError("either `peer_token` or `peer_token_file`")
        if secret and (len(secret) < SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable()):
            raise ValueError(f"the token must be of at least {SHORTEST_TOKEN} printable ASCII characters")
        if bool(self.certificate) != bool(self.key):
            raise ValueError("`certificate` and `key` belong together")
        return self
