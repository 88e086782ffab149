"""The documentation site: it builds without a warning, loads nothing from elsewhere, and is found.

A warning is a broken link or anchor, a page that no other leads to, a docstring that cannot be read
or a name in a signature that the API reference does not have.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hereish
import hereish.client
import hereish.traces
from tests.support.browser import chromium
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Addresses in scripts that nothing is loaded from: namespaces, and pages that comments name.
NAMED_ONLY = re.compile(
    r"https?://(www\.w3\.org/|bugs\.jquery\.com|bugs\.python\.org|developer\.mozilla\.org"
    r"|github\.com|jquery\.com|localhost|snowballstem\.org|tartarus\.org|underscorejs\.org)"
)


def build(source: Path, to: Path) -> subprocess.CompletedProcess[str]:
    """Build pages as `make docs` does, with the settings of docs/conf.py."""
    return subprocess.run(  # noqa: S603  # our own interpreter and pages
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E",
         "-c", str(ROOT / "docs"), "-d", str(to / "doctrees"), str(source), str(to / "site")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("docs")
    done = build(ROOT / "docs", to)
    assert done.returncode == 0, done.stderr
    return to / "site"


def test_broken_links_end_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    wrong = ("[a page](no-page.md)", "[a heading](#no-heading)", "![a picture](no-picture.png)")
    (source / "index.md").write_text("\n\n".join(["# A page", *wrong]), "utf-8")
    done = build(source, tmp_path)
    assert done.returncode != 0
    for name in ("no-page", "no-heading", "no-picture"):
        assert name in done.stderr


def documented(site: Path) -> set[str]:
    """All names of the API reference, from the index that other projects would link with."""
    data = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(data).decode("utf-8").splitlines()
    return {line.split(" ")[0] for line in lines if " py:" in line}


def test_every_public_name_is_in_the_api_reference(site: Path) -> None:
    names = documented(site)
    page = (ROOT / "docs" / "api" / "hereish.md").read_text("utf-8")
    for name in hereish.__all__:
        assert f"hereish.{name}" in names or f"`{name}` is" in page, name
    for module in (hereish.client, hereish.traces):
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= names


def test_every_proof_has_a_page(site: Path) -> None:
    index = (site / "proofs" / "index.html").read_text("utf-8")
    for proof in ROOT.glob("src/**/*.proof.md"):
        name = proof.name.removesuffix(".proof.md")
        title = proof.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert f"<h1>{title}" in (site / "proofs" / f"{name}.html").read_text("utf-8")
        assert f'href="{name}.html"' in index


class Loads(HTMLParser):
    """Collects what a page makes a browser load: not the links that somebody may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.addresses += [given[name] for name in ("src", "srcset", "data", "poster")
                           if name in given]  # fmt: skip
        if tag in ("link", "image", "use"):
            self.addresses += [given.get("href", ""), given.get("xlink:href", "")]
        self.addresses += in_style(given.get("style", ""))


def in_style(css: str) -> list[str]:
    """What a style sheet loads."""
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", css)


def in_script(script: str) -> list[str]:
    """The addresses in a script that it might ask for something."""
    return re.findall(r"https?://[^\s\"'`)]+", NAMED_ONLY.sub("", script))


def elsewhere(addresses: list[str]) -> list[str]:
    return [address for address in addresses if re.match(r"(?:\w+:)?//", address.strip())]


def loaded(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".css":
        return elsewhere(in_style(text))
    if path.suffix == ".js":
        return in_script(text)
    page = Loads()
    page.feed(text)
    styles = re.findall(r"<style[^>]*>(.*?)</style>", text, re.S)
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.S)
    return [
        *elsewhere([*page.addresses, *in_style("".join(styles))]),
        *in_script("".join(scripts)),
    ]


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(files) > 40
    wrong = {path.name: found for path in files if (found := loaded(path))}
    # The search index holds the words of all pages, and is data.
    assert set(wrong) <= {"searchindex.js"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>'),
        ("a.html", '<link rel="preconnect" href="//fonts.example">'),
        ("a.html", '<p style="background: url(https://cdn.example/x.png)">'),
        ("a.html", "<style>@import 'https://fonts.example/x.css';</style>"),
        ("a.html", "<script>fetch('https://count.example')</script>"),
        ("a.css", "@font-face { src: url('https://fonts.example/x.woff2') }"),
        ("a.js", "import('https://cdn.example/x.js')"),
    ],
)
def test_a_request_to_another_host_is_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert loaded(tmp_path / name)


def test_links_to_other_hosts_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://example.org">', "utf-8")
    assert not loaded(tmp_path / "a.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_it_opens_from_disk_and_searches(site: Path, browser: Browser) -> None:
    page = browser.new_page(color_scheme="dark")
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((site / "index.html").as_uri())
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark

    page.fill("input[name=q]", "geo-indistinguishability")
    page.press("input[name=q]", "Enter")
    page.wait_for_selector("#search-results li a")
    page.click("#search-results li a >> nth=0")
    page.wait_for_selector("article h1")
    page.goto((site / "gateway.html").as_uri() + "#policies")
    assert page.locator("#policies h2").is_visible()
    page.close()
    assert not wrong
    assert not [address for address in asked if not address.startswith("file:")]
