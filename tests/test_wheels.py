"""The check of wheels: what is needed, and what is printed of what lacks one. The package index is
not asked here."""

from __future__ import annotations

import pytest

from tools.check_wheels import PLATFORMS, PYTHONS, lacking, main, requirements, table

PROJECT = {
    "name": "a",
    "dependencies": ["core>=1"],
    "optional-dependencies": {
        "all": ["a[one,two]"],
        "one": ["x", "a[two]"],
        "two": ["y[part]>=2; python_version < '3.13'", "x", "core>=1"],
        "round": ["a[round, two]", "z"],
    },
}


@pytest.mark.parametrize(
    ("extras", "needed"),
    [
        ([], ["core>=1"]),
        (["two"], ["core>=1", "y[part]>=2; python_version < '3.13'", "x"]),
        (["all"], ["core>=1", "x", "y[part]>=2; python_version < '3.13'"]),
        (["round"], ["core>=1", "z", "y[part]>=2; python_version < '3.13'", "x"]),
    ],
)
def test_extras_that_name_others_are_written_out(extras, needed):
    assert requirements(PROJECT, extras) == needed


def without(*missing):
    """Return an index that lacks wheels of these (requirement, platform, Python)."""
    return lambda needed, platform, python: (
        not any((one, platform, python) in missing for one in needed)
    )


def test_what_lacks_a_wheel_is_found_where_it_does():
    missing = [
        ("y", "macOS ARM64", "3.12"),
        ("y", "macOS ARM64", "3.14"),
        ("y", "Linux ARM64", "3.14"),
    ]
    found = lacking(["x", "y"], without(*missing))
    assert found == {"y": {"Linux ARM64": ["3.14"], "macOS ARM64": ["3.12", "3.14"]}}
    assert table(found)[2:] == ["| y |  | 3.14 | 3.12, 3.14 |  |"]
    assert lacking(["x"], without(*missing)) == {}


def test_requirements_that_exclude_each_other_are_no_less_a_fault():
    found = lacking(["x", "y"], lambda needed, platform, python: len(needed) == 1)
    assert found == {"all of them together": {platform: list(PYTHONS) for platform in PLATFORMS}}


@pytest.mark.parametrize(
    ("package", "status"), [("numpy", 1), ("pytest", 1), ("mypy", 1), ("torch", 0), ("none", 0)]
)
def test_only_what_the_tests_need_fails(package, status, capsys):
    def resolves(needed, platform, python):
        return python != "3.13" or not any(one.startswith(package) for one in needed)

    assert main(resolves) == status
    assert (f"| {package}" in capsys.readouterr().out) == (package != "none")
