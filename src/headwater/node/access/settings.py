"""The settings of who may do what: the table `[access]` of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from headwater.node.settings import Settings

JWT_ALGORITHMS = (
    *("HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
)


class AccessSettings(Settings):
    password_file: str = Field(
        default="",
        description="Users and hashes of their passwords, as `headwater passwd` writes them; or Mosquitto's.",
    )
    password_cache_seconds: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="Seconds for which a password that was right need not be computed again; 0: never.",
    )
    verify_threads: int = Field(
        default=0,
        ge=0,
        description="Passwords and tokens that are verified at a time; 0: one on up to two cores, else two. Each "
        "password is computed by a process of the lowest priority, which takes the memory that the hash asks for: "
        "64 MiB for ours.",
    )
    max_verifying: int = Field(
        default=400,
        ge=1,
        description="Clients whose password or token is verified or waits for it; of more, those of the address that "
        "has most are refused with 0x89.",
    )
    jwt_key_file: str = Field(
        default="",
        description="Key of tokens (JWT) in the password field: a key set (JWKS), a public key (PEM) or a secret.",
    )
    jwt_algorithms: list[str] = Field(
        default=["RS256", "ES256", "HS256"],
        description="Algorithms that tokens may be signed with, as far as the kind of the key allows them.",
    )
    jwt_audience: str = Field(default="", description="What a token's `aud` must name; empty: tokens must have none.")
    jwt_issuer: str = Field(default="", description="What a token's `iss` must be; empty: anything.")
    jwt_username_claim: str = Field(default="sub", min_length=1, description="The claim that is the user name.")
    jwt_acl_claim: str = Field(
        default="acl",
        min_length=1,
        description="The claim with lists of filters, `publish`, `subscribe` and perhaps `receive`; "
        "without it `acl_file` counts.",
    )
    jwt_require_expiry: bool = Field(default=True, description="Whether tokens without `exp` are refused.")
    jwt_leeway: float = Field(
        default=0.0, ge=0, le=86_400, description="Seconds by which clocks may differ when a token begins and ends."
    )
    acl_file: str = Field(
        default="", description="Rules of who may publish and read what; with it, all that no rule allows is denied."
    )
    acl_subscribe: Literal["overlap", "cover", "always"] = Field(
        default="overlap",
        description="Which filters may be subscribed to: those with a topic in common with what may be read, those "
        "within one rule, or all (as Mosquitto does). Delivery is checked in each case.",
    )
    refused_subscription: Literal[0x80, 0x83, 0x87, 0x8F, 0x97] = Field(
        default=0x87,
        description="Reason code of a subscription that the rules refuse: 0x80 (128, unspecified), 0x83 (131, "
        "implementation specific), 0x87 (135, not authorized), 0x8F (143, topic filter invalid) or 0x97 (151, quota "
        "exceeded). 3.1.1 has 0x80 alone.",
    )
    acl_retained: bool = Field(
        default=False,
        description="Whether a new subscriber is not sent retained messages whose publisher may not publish there any "
        "more, by the rules of today.",
    )
    client_ids: Literal["any", "owned"] = Field(
        default="any",
        description="Who may use a client id. `any`: whoever gives it, so users can end or take over each other's "
        "sessions. `owned`: a session belongs to the user who began it until it ends; others are refused with 0x85.",
    )
    client_id_pattern: str = Field(
        default="",
        description="What client ids must look like: `%u` is the user name, `*` at the end anything, such as `%u/*`; "
        "others are refused with 0x85. Choose a separator that no user name has in it. Empty: any.",
    )
    connection_rate: float = Field(
        default=0.0, ge=0, description="CONNECTs a second from one address; more are refused with 0x9F; 0: any."
    )
    connection_burst: int = Field(default=50, ge=1, description="CONNECTs from one address that may come at once.")
    message_rate: float = Field(default=0.0, ge=0, description="PUBLISH packets a second from one client; 0: any.")
    byte_rate: float = Field(default=0.0, ge=0, description="Bytes a second from one client; 0: any.")
    rate_burst: float = Field(
        default=1.0, gt=0, le=86_400, description="Seconds' worth of messages and bytes that may come at once."
    )
    rate_policy: Literal["delay", "disconnect"] = Field(
        default="delay", description="Who goes faster is not read from for a while, or disconnected with 0x96."
    )
    ban_failures: int = Field(
        default=30, ge=0, description="Wrong passwords and tokens from an address until it is banned (0x8A); 0: never."
    )
    ban_user_failures: int = Field(
        default=0,
        ge=0,
        description="The same for a user name, or the client id of who gives none, from any address; 0: never.",
    )
    ban_window: float = Field(default=60.0, gt=0, description="Seconds within which failures are counted together.")
    ban_seconds: float = Field(default=300.0, gt=0, description="Seconds that a ban lasts.")
    ban_exempt: list[str] = Field(
        default=["127.0.0.0/8", "::1/128"], description="Networks whose addresses are never banned for failures."
    )
    max_sessions_per_user: int = Field(
        default=0, ge=0, description="Sessions of one user name; one more is refused with 0x97; 0: any."
    )
    max_subscriptions_per_user: int = Field(
        default=0, ge=0, description="Subscriptions of all sessions of a user; one more is refused with 0x97; 0: any."
    )
    max_session_memory_per_user: int = Field(
        default=0,
        ge=0,
        description="Bytes that sessions of one user have us keep beside messages, as `max_session_memory`; 0: any.",
    )
    max_queued_bytes_per_user: int = Field(
        default=0,
        ge=0,
        description="Bytes that wait in all sessions of one user; beyond, as if the session's own queue was full "
        "(`queue_full`); 0: any.",
    )
    max_retained_per_user: int = Field(
        default=0, ge=0, description="Retained messages of one user; one more is refused with 0x97; 0: any."
    )
    max_retained_bytes_per_user: int = Field(
        default=0, ge=0, description="Bytes of retained messages of one user, as `max_retained_bytes`; 0: any."
    )

    @field_validator("jwt_algorithms")
    @classmethod
    def _algorithms_are_known(cls, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in JWT_ALGORITHMS]
        if unknown or not names:
            raise ValueError(f"{', '.join(unknown) or 'nothing'} is none of {', '.join(JWT_ALGORITHMS)}")
        return names

    @field_validator("client_id_pattern")
    @classmethod
    def _binds_ids_to_users(cls, pattern: str) -> str:
        text = pattern.removesuffix("*")
        if pattern and ("*" in text or not text.count("%u") == 1 or pattern.endswith("%u*")):
            raise ValueError("client_id_pattern needs one %u, and `*` only at its end, behind a separator: %u/*")
        return pattern

    @field_validator("ban_exempt")
    @classmethod
    def _networks_are_networks(cls, networks: list[str]) -> list[str]:
        from ipaddress import ip_network

        for network in networks:
            ip_network(network)
        return networks

    @property
    def authenticates(self) -> bool:
        return bool(self.password_file or self.jwt_key_file)
