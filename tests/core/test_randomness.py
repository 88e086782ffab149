from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest

import hereish
from hereish.core import randomness


def test_uniforms_are_odd_multiples_of_two_to_the_minus_53_or_65() -> None:
    drawn = hereish.SecureDraws().uniforms(1_000_000)
    steps = drawn * np.where(drawn < 2.0**-20, 2.0**65, 2.0**53)
    assert ((steps % 2) == 1).all()
    assert drawn.min() > 0.0
    assert drawn.max() < 1.0


def test_the_smallest_and_the_largest_bits_stay_inside_the_open_interval() -> None:
    bits = np.array([0, 2**64 - 1], dtype=np.uint64)
    low, high = randomness._as_uniforms(bits)
    assert low == 2.0**-65
    assert high == 1.0 - 2.0**-53


def test_every_uniform_has_its_share_of_the_bits_below_it_however_small_it_is() -> None:
    """The far tails of the noise are logarithms of these: with 52 bits all words below 2**12 were
    one number, and the density of the radius jumped by 11 % at 36.7 / eps."""
    rng = np.random.default_rng(1)
    words = np.unique(
        [word for bits in range(64) for word in rng.integers(2**bits, 2 ** (bits + 1), 50, "u8")]
        + [2**44 - 1, 2**44, 2**44 + 1, 2**12, 2**12 - 1]
    ).astype(np.uint64)
    drawn = randomness._as_uniforms(words.copy())
    exact = np.array([(2 * int(word) + 1) / 2**65 for word in words])
    assert np.abs(drawn / exact - 1.0).max() <= 2.0**-32
    assert (np.diff(drawn) >= 0.0).all()
    tails = words < 2**44
    assert np.abs(drawn[tails] / exact[tails] - 1.0).max() <= 2.0**-52


def test_secure_numbers_are_never_handed_out_twice() -> None:
    draws = hereish.SecureDraws()
    seen = [draws.uniforms(count) for count in (1, 7, 128, 129, 500, 3) * 50]
    together = np.concatenate(seen)
    assert len(np.unique(together)) == len(together)


def test_what_was_handed_out_is_wiped_from_the_buffer() -> None:
    draws = hereish.SecureDraws()
    drawn = draws.uniforms(4)
    [(_, unused)] = draws._buffers
    whole = unused if unused.base is None else unused.base
    assert len(whole) > len(unused), "the wiped numbers are looked at too"
    assert not np.isin(drawn, whole.view(np.float64)).any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_draws_other_numbers_than_its_parent() -> None:
    draws = hereish.SecureDraws()
    draws.uniforms(1)  # so that there is a buffer to inherit
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, pickle.dumps(draws.uniforms(8)))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = pickle.loads(os.read(read, 10_000))  # noqa: S301  # our own child wrote it
    ours = draws.uniforms(8)
    assert not np.isin(theirs, ours).any()


def test_threads_that_draw_at_once_never_share_a_number() -> None:
    draws = hereish.SecureDraws()
    found: list[np.ndarray] = []

    def draw() -> None:
        found.extend([draws.uniforms(4) for _ in range(2000)])

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = np.concatenate(found)
    assert len(together) == 8 * 2000 * 4
    assert len(np.unique(together)) == len(together)


def test_a_seed_gives_the_same_numbers_in_whatever_pieces_they_are_drawn() -> None:
    whole = hereish.SeededDraws(5).uniforms(1000)
    pieces = hereish.SeededDraws(5)
    assert np.array_equal(whole, np.concatenate([pieces.uniforms(n) for n in (1, 499, 500)]))
    assert np.array_equal(whole[600:], hereish.SeededDraws(5, skip=600).uniforms(400))
    assert not np.isin(hereish.SeededDraws(6).uniforms(1000), whole).any()


def test_a_seeded_stream_does_not_change_from_release_to_release() -> None:
    first = hereish.SeededDraws(1).uniforms(3)
    assert [x.hex() for x in first.tolist()] == STREAM_OF_SEED_1


STREAM_OF_SEED_1 = [
    "0x1.f9323202e51a0p-6",
    "0x1.6e8b9e23783ccp-3",
    "0x1.af33d97c270d6p-2",
]


@pytest.mark.parametrize("seed", ["1", 1.0, True, None])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(hereish.ParameterError, match="whole number"):
        hereish.SeededDraws(seed)  # type: ignore[arg-type]


def derive(key: bytes = b"k" * 32, **changed: object) -> bytes:
    report: dict[str, object] = {
        "users": ["ann"],
        "windows": np.array([3]),
        "steps": np.array([4]),
        "at_s": np.array([5.0]),
        "values": np.array([[60.0, 25.0]]),
        "count": 4,
    }
    report.update(changed)
    return hereish.KeyedDraws(key).derive(**report).tobytes()  # type: ignore[arg-type]


def test_keyed_numbers_are_a_function_of_the_whole_identity_of_a_report() -> None:
    again = derive()
    assert derive() == again
    others = [
        derive(key=b"K" * 32),
        derive(users=["bob"]),
        derive(windows=np.array([4])),
        derive(steps=np.array([5])),
        derive(at_s=np.array([5.0000001])),
        derive(values=np.array([[60.0, np.nextafter(25.0, 26.0)]])),
        derive(values=np.array([[25.0, 60.0]])),
    ]
    assert len({again, *others}) == 1 + len(others)


def test_minus_nought_is_the_same_place() -> None:
    assert derive(values=np.array([[0.0, 1.0]])) == derive(values=np.array([[-0.0, 1.0]]))


def test_keyed_numbers_go_on_beyond_one_hash() -> None:
    few, many = derive(), derive(count=19)
    assert many[: len(few)] == few
    assert len(set(np.frombuffer(many).tolist())) == 19


def test_a_key_must_be_worth_the_name() -> None:
    for key in (b"short", "a string of enough length"):
        with pytest.raises(hereish.ParameterError, match="at least 16"):
            hereish.KeyedDraws(key)  # type: ignore[arg-type]


def test_no_representation_shows_a_key_or_hides_a_seed() -> None:
    assert "kkk" not in repr(hereish.KeyedDraws(b"k" * 32))
    assert "NOT PRIVATE" in repr(hereish.SeededDraws(3))
