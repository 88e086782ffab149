"""What is sealed with a key can be read and written by nobody else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hereish.errors import ParameterError
from hereish.traces.key_file import seal, unseal, write_key_file

CONTENT = b"how far from the truth" * 100


@pytest.fixture
def key(tmp_path: Path) -> Path:
    write_key_file(tmp_path / "key")
    return tmp_path / "key"


def test_who_has_the_key_reads_what_was_sealed(key: Path) -> None:
    assert unseal(key, seal(key, CONTENT)) == CONTENT


def test_another_key_reads_nothing(key: Path, tmp_path: Path) -> None:
    write_key_file(tmp_path / "other")
    assert unseal(tmp_path / "other", seal(key, CONTENT)) is None


@pytest.mark.parametrize("at", [0, 12, 500, -1])
def test_what_was_changed_is_not_read(key: Path, at: int) -> None:
    sealed = bytearray(seal(key, CONTENT))
    sealed[at] ^= 1
    assert unseal(key, bytes(sealed)) is None


@pytest.mark.parametrize("length", [0, 5, 12, 20])
def test_what_was_cut_is_not_read(key: Path, length: int) -> None:
    assert unseal(key, seal(key, CONTENT)[:length]) is None


def test_the_same_is_sealed_otherwise_each_time(key: Path) -> None:
    first, second = seal(key, CONTENT), seal(key, CONTENT)
    assert first != second
    assert len(first) == len(second)
    assert CONTENT[:8] not in first


def test_it_is_not_sealed_with_the_key_itself_nor_with_that_of_the_draws(key: Path) -> None:
    """Who learns one of the three must not have the others."""
    plain, sealed = base64.b64decode(key.read_bytes()), seal(key, CONTENT)
    draws = hashlib.blake2b(plain, digest_size=32, person=b"hereish draws 2").digest()
    for other in (plain, draws):
        with pytest.raises(InvalidTag):
            AESGCM(other).decrypt(sealed[:12], sealed[12:], None)


def test_nothing_is_sealed_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(ParameterError):
        seal(tmp_path / "none", CONTENT)
