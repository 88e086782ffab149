"""A prior that has moved fresh noise is named beside the guarantee, whatever the output is."""

from __future__ import annotations

import dataclasses
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hereish
from hereish.priors import prior_from_points, save_prior
from hereish.traces.files import read_guarantee, sanitize_files
from hereish.traces.formats.registry import WRITTEN_NAMES
from hereish.traces.guarantee import GuaranteeMetadata
from tests.support.terminal import Terminal, output_of

NAME = 'stops of "Helsinki" & around'
ENDINGS = {"geolife": "plt", "tdrive": "txt"}
PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
PRIOR = prior_from_points(
    np.array([60.17, 24.94]) + np.random.default_rng(1).normal(0, 0.05, (500, 2)), name=NAME
)
PLAIN = hereish.whole_day(PRIVACY, window=hereish.Day("Europe/Helsinki"))
MOVED = dataclasses.replace(PLAIN, remap=hereish.PriorRemap(PRIOR))


@pytest.fixture
def day(tmp_path: Path, hereish: Terminal) -> Path:
    path = tmp_path / "day.csv"
    assert hereish("sample", "-o", path, "--users", 1).code == 0
    path.write_text(path.read_text().replace("person 1", "1"))
    return path


@pytest.mark.parametrize("form", WRITTEN_NAMES)
def test_every_format_names_it(day: Path, form: str) -> None:
    if "parquet" in form:
        pytest.importorskip("pyarrow")
    texts = {}
    for number, m in enumerate((PLAIN, MOVED)):
        out = day.with_name(f"out{number}") / f"1.{ENDINGS.get(form, form)}"
        out.parent.mkdir()
        tally = sanitize_files([day], out, m, to_form=form, seed=1)
        texts[m] = b"".join(map(content_of, sorted(out.parent.iterdir())))
        assert tally.prior == (None if m is PLAIN else NAME)
        found = read_guarantee(str(out), form)
        if form != "geolife":  # whose guarantee is not read back
            assert found is not None
            assert found.prior == tally.prior
            assert found.statement == tally.guarantee, "which is as it would be without it"
    assert b"around" in texts[MOVED]
    assert b"around" not in texts[PLAIN]


def content_of(path: Path) -> bytes:
    if path.suffix != ".kmz":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return archive.read("doc.kml")


def test_a_frame_names_it() -> None:
    pandas = pytest.importorskip("pandas")
    from hereish.traces.frames import sanitize_frame

    frame = pandas.DataFrame(
        {"time": pandas.to_datetime(["2025-06-03T08:00Z"]), "lat": [60.17], "lon": [24.94]}
    )
    plain, moved = (sanitize_frame(frame, m, seed=1).attrs["hereish"] for m in (PLAIN, MOVED))
    assert moved == f"{plain} Fresh noise was moved by a public prior: {NAME}"


def test_the_option_moves_fresh_noise_and_the_summary_says_so(
    hereish: Terminal, day: Path, tmp_path: Path
) -> None:
    save_prior(PRIOR, tmp_path / "stops.npz")
    outs: list[str] = []
    for options in ((), ("--prior", tmp_path / "stops.npz")):
        out = tmp_path / f"out{len(outs)}.csv"
        text = output_of(hereish("sanitize", day, "-o", out, "--seed", 1, *options))
        assert (f"by a public prior: {NAME}." in text) == bool(options)
        outs.append(out.read_text())
    assert outs[0] != outs[1]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("nowhere.csv", "nowhere.csv: not found"),
        ("moon", "a prior is 'world' or a file that ends in .npz"),
        ("{day}", "needs the columns lat and lon"),
    ],
)
def test_what_is_no_prior_is_a_usage_error(
    hereish: Terminal, day: Path, option: str, words: str
) -> None:
    text = day.read_text().replace("lat,", "phi,", 1)
    day.with_name("census.csv").write_text(text)
    prior = option.format(day=day.with_name("census.csv"))
    done = hereish("sanitize", day, "-o", day.with_name("out.csv"), "--prior", prior)
    assert done.code in (1, 2)
    assert words in done.err
    assert "Traceback" not in done.err
    assert not day.with_name("out.csv").exists()


def test_metadata_of_files_that_were_written_before_there_were_priors() -> None:
    old = GuaranteeMetadata("a statement", eps_per_m=0.1)
    assert "prior" not in old.as_dict()
    assert GuaranteeMetadata.from_dict(old.as_dict()) == old
    new = dataclasses.replace(old, prior="the world")
    assert GuaranteeMetadata.from_dict(new.as_dict()) == new
    assert GuaranteeMetadata.from_dict(new.as_dict() | {"prior": 3}) is None
    assert GuaranteeMetadata.from_dict(new.as_dict() | {"posterior": ""}) is None
