"""The project's own files agree: metadata, citation, changelog, lint rules, what make installs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

import conftest
import hereish
from benchmarks.results import Result, format_table, update_page
from tests.support.paths import ROOT
from tests.support.untested_modules import untested_modules

TOOLS = Path(sys.executable).parent
CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def normalised(requirement: str) -> str:
    """The name of a requirement, as indexes spell it."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_the_citation_follows_the_schema() -> None:
    checked = subprocess.run(  # noqa: S603  # a tool of our own environment
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.citation-file-format", str(ROOT / "CITATION.cff")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == hereish.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    (paper,) = citation["references"]
    assert paper["title"] == "A Predictive Differentially-Private Mechanism for Mobility Traces"
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Chatzikokolakis", "Palamidessi", "Stronati"]


def test_the_changelog_has_dated_releases_below_what_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *releases = re.findall(r"^## (.+)$", text, re.M)
    assert first == "Unreleased"
    numbers, dates = zip(*(release.split(" - ") for release in releases), strict=True)
    assert hereish.__version__ in numbers
    assert sorted(map(date.fromisoformat, dates), reverse=True) == [*map(date.fromisoformat, dates)]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(citation["date-released"]) == dates[numbers.index(hereish.__version__)]
    kinds = set(re.findall(r"^### (.+)$", text, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_requirement_has_a_version_in_the_constraints() -> None:
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    grouped = chain.from_iterable(groups[name] for name in ("test", "lint"))
    wanted = {normalised(name) for name in (*project["dependencies"], *extras, *grouped)}
    pinned = {normalised(line) for line in CONSTRAINTS if not line.startswith("#")}
    assert wanted - {"hereish"} <= pinned, "make lock"


def test_the_constraints_are_versions_and_nothing_else() -> None:
    for line in CONSTRAINTS:
        marker = r"( ; [a-z_]+ (<|>=|==|!=|>|<=) '[\w.*]+'( (and|or) .+)?)?"
        assert line.startswith("#") or re.fullmatch(rf"[\w.-]+==[\w.+!-]+{marker}", line), line
        assert not re.search(r"://|file:|(^|\s)/", line), line


def test_what_users_install_is_not_pinned() -> None:
    project = PROJECT["project"]
    for requirement in chain(project["dependencies"], *project["optional-dependencies"].values()):
        assert "==" not in requirement.split(";")[0], requirement


def test_the_groups_are_those_that_make_installs() -> None:
    (groups,) = re.findall(r"^GROUPS := (.+)$", MAKEFILE, re.M)
    assert set(groups.split()) == PROJECT["dependency-groups"].keys()


def test_only_one_target_installs_system_packages() -> None:
    recipes = re.split(r"^(?=[\w$(].*:)", MAKEFILE, flags=re.M)
    installing = [
        recipe.split(":")[0] for recipe in recipes if "\t" in recipe and "apt-get update" in recipe
    ]
    assert installing == ["system-packages"]


def test_the_pythons_are_the_same_everywhere() -> None:
    classifiers = " ".join(PROJECT["project"]["classifiers"])
    versions = re.findall(r"Python :: (3\.\d+)", classifiers)
    (named,) = re.findall(r"^PYTHONS \?= (.+)$", MAKEFILE, re.M)
    assert [f"python{version}" for version in versions] == named.split()
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"


def test_the_hooks_call_the_installed_tools() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    for repository in config["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            tool = hook["entry"].split()[0]
            assert tool.startswith(".venv/bin/")
            assert (TOOLS / Path(tool).name).exists(), tool


def test_every_exception_to_a_lint_rule_has_its_reason() -> None:
    bare = r"#\s*noqa(?!: [A-Z0-9, ]+  # \w)|# type: ignore(?!\[[a-z, -]+\]  # \w)"
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("src", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.search(bare, line)
    ]
    assert not found


def test_every_exception_in_the_settings_of_ruff_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    rules = text[text.index("\nignore = [") : text.index("[tool.mypy]")].splitlines()
    named = [line for line in rules if re.search(r'"[A-Z]+\d+"', line)]
    assert named
    assert [line for line in named if not re.search(r"# \S", line)] == []


@pytest.mark.parametrize("pattern", [*conftest.QUICK, *conftest.SLOW])
def test_the_lists_of_quick_and_slow_tests_name_files_that_exist(pattern: str) -> None:
    assert list(ROOT.glob(pattern))


def test_no_test_is_quick_and_slow() -> None:
    quick, slow = (
        {path for pattern in patterns for path in ROOT.glob(pattern)}
        for patterns in (conftest.QUICK, conftest.SLOW)
    )
    assert not quick & slow


def measured(**functions: int) -> dict[str, Any]:
    """A file in a report of coverage: for each function how many of its two lines ran."""
    regions = {
        name: {"executed_lines": [*range(count)], "summary": {"num_statements": 2}}
        for name, count in {"": 2, **functions}.items()
    }
    return {"functions": regions, **regions[""]}


def test_a_module_of_which_only_the_import_ran_is_found() -> None:
    imported, used = measured(f=0, g=0), measured(f=0, g=1)
    constants, never = measured(), {**measured(), "executed_lines": []}
    files = {"imported": imported, "used": used, "constants": constants, "never": never}
    assert untested_modules(files) == ["imported", "never"]


def test_benchmarks_of_some_parts_keep_the_rows_of_the_others() -> None:
    marker = "<!-- written by make bench-write -->"
    first, second = Result("a / b", "1", "1", True), Result("c / d", "9", "at most 2", False)
    page = f"head\n{marker}\n\n{format_table([first, second])}\n\n{marker}\ntail\n"
    again = Result("c / d", "2", "at most 2", True)
    kept = update_page(page, [again], keep=True)
    assert kept == page.replace(second.row(), again.row())
    assert update_page(page, [again], keep=False) == kept.replace(f"{first.row()}\n", "")


def test_an_unknown_part_of_the_benchmarks_is_a_usage_error() -> None:
    done = subprocess.run(  # our own program
        [sys.executable, "-m", "benchmarks", "nonsense"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no such part: nonsense" in done.stderr
