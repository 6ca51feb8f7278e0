"""The state under test as pydantic's models; imported by contests of ours and of pydantic alone."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Account(BaseModel):
    """An account with two rules."""

    model_config = ConfigDict(frozen=True)
    owner: str = Field(min_length=1, max_length=100)
    balance: int = Field(ge=0)


class Plain(BaseModel):
    """The bank with a dict."""

    model_config = ConfigDict(frozen=True)
    accounts: dict[str, Account]
