"""Credentials in text are masked wherever their form gives them away; all else stays."""

import pytest

from liquidlog.spec.text import masked

SECRET = "Zm9v/YmFy+1234=="  # noqa: S105  nobody's


@pytest.mark.parametrize(
    "text",
    [
        f"https://account.blob/c/t?sv=2024-01-01&sig={SECRET}&se=x",
        f"X-Amz-Signature={SECRET}",
        f"X-Amz-Security-Token={SECRET}",
        f"AccountName=a;AccountKey={SECRET};EndpointSuffix=x",
        f'{{"access_token": "{SECRET}", "expires_in": 5}}',
        f"Authorization: Bearer {SECRET}",
        f"aws_secret_access_key={SECRET}",
        f"client_secret: '{SECRET}'",
        f"postgresql://user:{SECRET.replace('/', '')}@host/db",
        "s3://AKIA0123456789:Zm9vYmFy@bucket/table",
        "https://Zm9vYmFy@host/api",
        "abfss://user:Zm9vYmFy@account.dfs/table",
    ],
)
def test_credentials_are_masked(text: str) -> None:
    shown = masked(text)
    assert "***" in shown
    assert not [part for part in ("Zm9v", "YmFy", "1234") if part in shown]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3://bucket/sales/day=2026-01-31/part-0.parquet",
        "abfss://container@account.dfs.core.windows.net/table",
        "the design = 7 columns by a, b",
        "user@example.org wrote to gs://bucket/a@b",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert masked(text) == text
