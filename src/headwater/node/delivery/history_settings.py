"""The settings of what goes from the delivery store to object storage: the table `[store.history]`."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from headwater.node.settings import Settings


class HistorySettings(Settings):
    """Older messages of the delivery store in object storage (docs/store.md)."""

    url: str = Field(
        default="",
        description="Where blocks of messages go, such as `s3://bucket/path`, `az://container/path`, "
        "`gs://bucket/path` or a folder (`file:///path`); "
        "below it each store has a folder of its id. Empty: they stay on the disk.",
    )
    after: float = Field(
        default=3600.0, gt=0, description="Seconds since their arrival after which messages go to object storage."
    )
    keep_for: float = Field(
        default=0.0,
        ge=0,
        description="Seconds since their arrival after which they are removed there, whoever has read them; 0: they "
        "are not.",
    )
    options: dict[str, SecretStr] = Field(
        default={},
        description="How the storage is reached, and credentials, by the names that deltalake has for them "
        "(`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` …). What is not here comes "
        "from the environment. They are never shown, and readers need their own.",
    )

    @field_validator("url")
    @classmethod
    def _url_is_a_place(cls, url: str) -> str:
        from headwater.objects import PlaceError, is_remote

        try:
            if url and not is_remote(url) and not url.startswith(("file:", "/")):
                raise ValueError("a folder needs its whole path, such as file:///var/lib/history")
        except PlaceError as error:
            raise ValueError(str(error)) from None
        return url

    def revealed(self) -> dict[str, str]:
        """The options, for whoever opens the place."""
        return {name: value.get_secret_value() for name, value in self.options.items()}
