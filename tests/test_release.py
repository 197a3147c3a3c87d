"""What `make release` looks at before it builds, and in what it built; and the files that publish
and maintain."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import kernelmosaic
from tools.release import IN_SOURCE, IN_WHEEL, OPTIONAL, disagreements, misplaced

TOP = Path(__file__).parents[1]

FILES = {
    "CHANGELOG.md": "# Changelog\n\n## [1.2.0] - 2030-01-02\n\n## [1.1.0] - 2029-01-01\n",
    "CITATION.cff": "version: 1.2.0\ndate-released: 2030-01-02\n",
    "packaging/conda/recipe.yaml": 'context:\n  version: "1.2.0"\n',
    "docs/_static/switcher.json": '[{"version": "1.2.0"}]',
}


def test_versions_and_dates_that_agree():
    assert disagreements("1.2.0", FILES.__getitem__) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CITATION.cff", "version: 1.2.0\ndate-released: 2030-01-03\n"),
        ("CITATION.cff", "version: 1.2.1\ndate-released: 2030-01-02\n"),
        ("packaging/conda/recipe.yaml", 'context:\n  version: "1.1.0"\n'),
        ("docs/_static/switcher.json", '[{"version": "1.1.0"}]'),
    ],
)
def test_another_version_or_day_is_found(name, text):
    assert disagreements("1.2.0", {**FILES, name: text}.__getitem__) == [name]


def test_a_changelog_without_a_day_is_found():
    texts = {**FILES, "CHANGELOG.md": "## [1.2.0] - unreleased\n"}
    assert disagreements("1.2.0", texts.__getitem__) == ["CHANGELOG.md", "CITATION.cff"]


def test_a_wheel_holds_the_library_and_a_source_distribution_all_that_builds_it():
    wheel = [*IN_WHEEL, "kernelmosaic/kernels/base.py", "kernelmosaic-1.2.0.dist-info/METADATA"]
    source = [f"kernelmosaic-1.2.0/{name}" for name in IN_SOURCE]
    assert misplaced(wheel, source) == []
    assert misplaced([*wheel, "tests/test_a.py"], source) == ["the wheel has tests/test_a.py"]
    assert misplaced(wheel[1:], source) == [f"{IN_WHEEL[0]} is missing"]
    assert misplaced(wheel, source[:-1]) == [f"{IN_SOURCE[-1]} is missing"]
    cached = "src/kernelmosaic/__pycache__/a.nbi"
    assert misplaced(wheel, [*source, f"kernelmosaic-1.2.0/{cached}"]) == [f"{cached} is no source"]
    assert all(
        (TOP / name).exists() for name in (*IN_SOURCE, *(f"src/{name}" for name in IN_WHEEL))
    )


def test_optional_packages_are_those_of_the_extras():
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        re.split(r"[\[><=]", one)[0]
        for extra in project["optional-dependencies"].values()
        for one in extra
    }
    assert set(OPTIONAL) <= named
    assert not {re.split(r"[><=]", one)[0] for one in project["dependencies"]} & set(OPTIONAL)


def test_the_matrix_has_the_systems_and_pythons_that_are_supported():
    classifiers = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "classifiers"
    ]
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))
    workflow = (TOP / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert f"python: {json.dumps(pythons)}" in workflow
    for system in ("ubuntu-latest", "ubuntu-24.04-arm", "macos-latest", "windows-latest"):
        assert system in workflow
        assert system in (TOP / ".github/workflows/release.yml").read_text(encoding="utf-8")
    support = (TOP / "SUPPORT.md").read_text(encoding="utf-8")
    assert f"{pythons[0]} to {pythons[-1]}" in support


def test_the_upload_needs_no_secret_and_is_attested():
    workflow = (TOP / ".github/workflows/release.yml").read_text(encoding="utf-8")
    publish = workflow.split("  publish:\n")[1]
    assert "id-token: write" in publish
    assert "id-token: write" not in workflow.split("  publish:\n")[0]
    assert "pypa/gh-action-pypi-publish" in publish
    assert "attest-build-provenance" in publish
    assert not re.search(r"password|secrets\.|token:\s*\$", workflow)


def test_the_archive_is_described_as_the_package():
    described = json.loads((TOP / ".zenodo.json").read_text(encoding="utf-8"))
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert described["license"] == project["license"]
    assert [one["name"] for one in described["creators"]] == [
        one["name"] for one in project["authors"]
    ]
    assert set(project["keywords"]) - set(described["keywords"]) <= {"multi-view learning"}


def test_the_version_switcher_has_this_version_once_and_one_preferred():
    versions = json.loads((TOP / "docs/_static/switcher.json").read_text(encoding="utf-8"))
    assert [one["version"] for one in versions].count(kernelmosaic.__version__) == 1
    assert [one["version"] for one in versions if one.get("preferred")] == [
        kernelmosaic.__version__
    ]
    assert len({one["url"] for one in versions}) == len(versions)
