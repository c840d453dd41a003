"""How a place is named, and what of it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.objects import Missing, PlaceError, is_remote, open_place
from headwater.objects.settings import Reach, without_secrets
from tests.objects.s3_server import s3_server

SECRETS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "aws_secret_access_key": "topsecret", "AWS_SESSION_TOKEN": "sesame"}
QUICK = {"max_retries": "1", "retry_timeout": "1s", "connect_timeout": "1s"}


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("/data/lake", False),
        ("lake", False),
        ("file:///data/lake", False),
        ("s3://bucket/lake", True),
        ("s3a://bucket/lake", True),
        ("abfss://container@account.dfs.core.windows.net/lake", True),
        ("az://container/lake", True),
        ("gs://bucket", True),
        ("memory://name", True),
    ],
)
def test_places_by_url(url: str, remote: bool) -> None:
    assert is_remote(url) is remote


def test_a_folder_by_url(tmp_path: Path) -> None:
    assert open_place(f"file://{tmp_path}/a%20b").folder == tmp_path / "a b"
    assert open_place("x").folder == Path.cwd() / "x"
    assert open_place(tmp_path).below("t/u").folder == tmp_path / "t/u"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("hdfs://host/lake", "mount it as a folder"),
        ("ftp://host/lake", "use a folder, s3://"),
        ("s3://key:secret@bucket/lake", "credentials do not belong into the URL"),
    ],
)
def test_what_is_no_place(url: str, why: str) -> None:
    with pytest.raises(PlaceError, match=why) as found:
        open_place(url)
    assert "key:secret" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"AWS_ALLOW_HTTP": "perhaps"}, "AWS_ALLOW_HTTP is true or false"),
        ({"timeout": "soon"}, "timeout is a time such as 30s"),
        ({"max_retries": "-1"}, "max_retries is a whole number"),
        ({"retry_timeout": "1"}, "retry_timeout is a time"),
        ({"AWS_REGOIN": "us-east-1"}, "aws_regoin"),
    ],
)
def test_options_that_are_none(options: dict[str, str], why: str) -> None:
    with pytest.raises(PlaceError, match=why):
        open_place("s3://bucket", options)


def test_the_other_stores_are_known() -> None:
    """Nothing is asked of them; their options are."""
    open_place("gs://bucket/x", {"GOOGLE_SKIP_SIGNATURE": "true"})
    account = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "azure_storage_account_key": "c2VjcmV0"}
    open_place("abfss://container@account.dfs.core.windows.net/lake", account)
    open_place("az://container/lake", {**account, "timeout": "5s"})


def test_options_of_the_connection_go_to_it() -> None:
    reach = Reach("s3", {**SECRETS, "AWS_ALLOW_HTTP": "true", "AWS_TIMEOUT": "3s", "max_retries": "2"})
    assert reach.client == {"allow_http": True, "timeout": "3s", "connect_timeout": "5s"}
    assert reach.store == {name.lower(): value for name, value in SECRETS.items()}
    assert (reach.most_retries, reach.retry_seconds) == (2, 60.0)
    assert reach.for_delta()["max_retries"] == "2"


def test_no_secret_is_shown() -> None:
    place = open_place("s3://bucket/lake", {**SECRETS, **QUICK, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert repr(place) == "Remote('s3://bucket/lake')"
    with pytest.raises(PlaceError) as found:
        place.get("a")
    assert "s3://bucket/lake" in str(found.value)
    assert not any(each in str(found.value) for each in SECRETS.values())
    said = "GET https://account/x?sv=2020&sig=abc%2F failed for topsecret\n\nDebug source:\nAKIAEXAMPLE"
    assert without_secrets(said, Reach("s3", SECRETS)) == "GET https://account/x?… failed for …"


def test_a_bucket_that_is_not_there() -> None:
    with s3_server() as server:
        place = open_place("s3://no-such-bucket/lake", server.options())
        with pytest.raises(Missing, match="no such bucket"):
            place.put("a", b"1")
        with pytest.raises(Missing, match="no such bucket"):
            list(place.list())


def test_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as server:
        for name, value in server.options().items():
            monkeypatch.setenv(name, value)
        place = open_place(f"{server.bucket()}/lake")
        place.put("a", b"1")
        assert place.get("a").data == b"1"
