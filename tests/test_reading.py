"""How densely the source reads: the counts of `tools/reading.py` on small texts, and the figures of
the library against the agreed ones and `tools/reading_limits.json`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tools.reading import (
    AGREED,
    AGREED_BRANCHES,
    LIMITS_FILE,
    MAX_BRANCHES,
    MAX_COLUMNS,
    MAX_SLACK,
    SRC,
    STEPS,
    Limits,
    Module,
    count_module,
    figures,
    folder_faults,
    large_function_faults,
    listed_function_faults,
    main,
    read_tree,
    round_up,
    wide_line_faults,
)

SAMPLE = '''"""A module."""

# A comment is no code.
def scale(K, own):
    """Return a scaled matrix.

    The docstring is no code either.
    """
    if K is None and own is None or not own:  # nor is this comment
        return None
    found, n = K, 1
    rows = [row for row in K if row if any(row)]
    for row in rows:
        total = {i: x for i, x in enumerate(row)} if row else sum(x for x in row)
    return f"{found} {n:.1f}", (
        lambda x: x if x else total
    )
'''
#: The lines of code of the sample, with blanks between tokens; the formatted text is one token.
SAMPLE_TOKENS = """
def scale ( K , own ) :
if K is None and own is None or not own :
return None
found , n = K , 1
rows = [ row for row in K if row if any ( row ) ]
for row in rows :
total = { i : x for i , x in enumerate ( row ) } if row else sum ( x for x in row )
return f-string , (
lambda x : x if x else total
)
"""


def module_of(text: str, path: str = "package/module.py") -> Module:
    return count_module(text, path)


# The tool -----------------------------------------------------------------------------------------


def test_the_counts_of_a_small_module():
    module = module_of(SAMPLE)
    assert module.n_lines == len(SAMPLE_TOKENS.split("\n")) - 2 == 10
    assert module.n_tokens == len(SAMPLE_TOKENS.split()) == 90
    assert (module.n_if_else, module.n_comprehensions, module.n_tuple_assignments) == (2, 3, 1)
    (function,) = module.functions
    # if, and, or; comprehension with two conditions; loop; if-else with two comprehensions; if-else.
    assert function.branches == 1 + 3 + 3 + 1 + 3 + 1
    assert function.names == {"K", "own", "found", "n", "rows", "row", "total", "i", "x"}
    assert function.pronouns == ["found", "own"]
    assert function.n_lines == 9
    assert figures([module]) == {
        "tokens per line": 9.0,
        "if-else per 1,000 lines": 200,
        "comprehensions per 1,000 lines": 300,
        "tuple assignments per 1,000 lines": 100,
        "pronouns in %": pytest.approx(100 * 2 / 9),
    }


@pytest.mark.parametrize(
    ("statement", "decisions"),
    [
        ("pass", 0),
        ("if a: pass\n elif b: pass\n else: pass", 2),
        ("while a: pass", 1),
        ("for i in a: pass", 1),
        ("try: pass\n except ValueError: pass\n except TypeError: pass\n finally: pass", 2),
        ("assert a", 1),
        ("match a:\n  case 1: pass\n  case _: pass", 2),
        ("return a and b and c or d", 3),
        ("return a if b else c if d else e", 2),
        ("return {x for y in a for x in y if x}", 3),
        ("with a: return not a", 0),
        ("def inner():\n  return a or b\n return inner", 1),
    ],
)
def test_branches_are_all_decisions_of_a_reader(statement, decisions):
    function = module_of(f"def f(a, b, c, d, e):\n {statement}\n").functions[0]
    assert function.branches == 1 + decisions


@pytest.mark.parametrize(
    "literal", ["'a'", "f'a'", "f'{a} {b + c:.{d}f} {e!r}'", "f'''a {b}\n{c}'''", "f'{{a}}'"]
)
def test_a_text_is_one_token(literal):
    module = module_of(f"x = {literal}\n")
    assert module.n_tokens == 3
    assert module.n_lines == 1 + literal.count("\n")


def test_functions_have_qualified_names():
    text = (
        "class A:\n def f(self):\n  def g(): return 1\n  return g\n"
        " class B:\n  async def f(self): return 2\n"
        "if A:\n def h(): return 3\n"
    )
    keys = [function.key for function in module_of(text).functions]
    names = ["A.f", "A.f.g", "A.B.f", "h"]
    assert keys == [f"package/module.py:{name}" for name in names]


def test_wide_lines_are_those_of_code_comments_and_docstrings():
    wide = "x" * MAX_COLUMNS
    text = "\n".join(
        [
            f'"""A docstring {wide}."""',
            f"y = '{wide}'",
            f"# {wide}",
            f"y = '''a program\n{wide} +\n'''",
            f"y = (\n    'one message in two pieces '\n    '{wide}'\n)",
            f"# {'Z̃' * (MAX_COLUMNS - 2)}",
            f"{'y = 1':{MAX_COLUMNS}}  # type: ignore[call-arg]",
            "",
        ]
    )
    assert module_of(text).wide_lines == (1, 2, 3, 9)
    (fault, *_) = wide_line_faults([module_of(text)])
    assert fault == "package/module.py:1 is wider than 100 columns: break the line"


def function_with(branches: int, name: str = "f") -> str:
    return f"def {name}(a):\n    return {' or '.join(['a'] * branches)}\n"


def test_functions_and_their_list_are_compared_in_both_directions():
    key = "package/module.py:f"
    high, higher = AGREED_BRANCHES + 1, AGREED_BRANCHES + 2

    def fault(branches: int, listed: dict[str, int]) -> str:
        modules = [module_of(function_with(branches))]
        faults = listed_function_faults(modules, Limits(listed, {}))
        return "; ".join(faults)

    assert fault(AGREED_BRANCHES, {}) == ""
    assert fault(high, {key: high}) == ""
    # The code has to become simpler.
    assert fault(high, {}).startswith(f"{key} has {high} branches, 12 are agreed: return early")
    assert f"{high} are listed: return early" in fault(higher, {key: high})
    # The list has to become shorter.
    assert f"lower its {higher} by `python tools/reading.py" in fault(high, {key: higher})
    assert "need not be listed any more" in fault(AGREED_BRANCHES, {key: high})
    assert "does not exist" in fault(high, {key: high, "package/module.py:g": high})


def test_no_list_allows_more_branches_than_any_function_may_have():
    modules = [module_of(function_with(MAX_BRANCHES) + function_with(MAX_BRANCHES + 1, "g"))]
    assert listed_function_faults(modules, Limits.of(modules)) == []
    (fault,) = large_function_faults(modules)
    assert fault.startswith("package/module.py:g has 21 branches, 20 at most are allowed")


def test_of_functions_with_one_name_the_largest_counts():
    modules = [module_of(function_with(15) + function_with(2) + function_with(14))]
    assert Limits.of(modules).branches == {"package/module.py:f": 15}


def test_folders_and_their_exceptions_are_compared_in_both_directions():
    module = replace(module_of("x = 1\n"), n_lines=1000, n_tokens=9000, n_if_else=40)
    folder, figure = "package", "if-else per 1,000 lines"

    def fault(exceptions: dict[str, float]) -> str:
        return "; ".join(folder_faults([module], Limits({}, {folder: exceptions})))

    # The code has to become simpler.
    assert fault({}).startswith("package has 40.00 if-else per 1,000 lines, at most 15: rewrite")
    assert "at most 39.5: rewrite" in fault({figure: 39.5})
    assert fault({figure: 40.0}) == ""
    assert fault({figure: 42.0}) == ""
    # The exceptions have to become lower.
    assert "lower its exception of 42.5 by `python tools/read" in fault({figure: 42.5})
    gone = Limits({}, {folder: {figure: 40.0}, "package/gone": {figure: 20.0}})
    (fault_of_gone,) = folder_faults([module], gone)
    assert fault_of_gone.startswith("package/gone is listed and does not exist: remove it by")


def test_a_folder_is_counted_without_the_folders_in_it():
    dense = replace(module_of("x = 1\n", "package/inner/a.py"), n_tokens=100)
    limits = Limits.of([module_of("x = 1\n"), dense])
    assert limits.folders == {"package/inner": {"tokens per line": 100.0}}


@pytest.mark.parametrize("figure", AGREED)
def test_limits_hold_for_what_they_were_written_for(figure):
    agreed, step = AGREED[figure], STEPS[figure]
    for value in (1.0001 * agreed, 1.01 * agreed, 1.34 * agreed, 2 * agreed, 5.017 * agreed):
        ceiling = round_up(value, step)
        assert (1 - MAX_SLACK) * ceiling <= value <= ceiling
    modules = [module_of(SAMPLE + function_with(13))]
    limits = Limits.of(modules)
    assert Limits.parse(limits.text()) == limits
    assert listed_function_faults(modules, limits) + folder_faults(modules, limits) == []


def test_raised_entries_are_named():
    before = Limits({"a.py:f": 14, "a.py:g": 13}, {"a": {"tokens per line": 9.6}})
    after = Limits({"a.py:f": 15, "a.py:h": 13}, {"a": {"tokens per line": 9.7}})
    assert after.raised_since(after) == []
    assert before.raised_since(after) == ["a.py:g: 13 branches"]
    assert after.raised_since(before) == [
        "a.py:f: 15 branches",
        "a.py:h: 13 branches",
        "a: 9.7 tokens per line",
    ]


def test_the_command_prints_figures_by_folder_and_the_largest_functions(tmp_path, capsys):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "a.py").write_text(SAMPLE, encoding="utf-8")
    (package / "inner" / "b.py").write_text(function_with(14, "own"), encoding="utf-8")
    main([str(package), "--by-folder", "--worst", "1"])
    header, outer, inner, total, worst = capsys.readouterr().out.splitlines()
    assert header.split("  ")[-1] == "wide lines"
    assert outer.split()[:2] == ["package", "10"]
    # All but the tokens per line are above the agreed figures.
    assert [cell[-1] for cell in outer.split()[2:7]] == ["0", "!", "!", "!", "!"]
    assert inner.split()[:2] == ["package/inner", "2"]
    assert inner.split()[-2:] == ["1", "0"]
    assert total.split()[:2] == ["all", "12"]
    assert worst == "package/inner/b.py:1 own: 14 branches, 1 lines, pronouns: none"


def test_the_command_writes_the_limits(tmp_path, capsys, monkeypatch):
    package = tmp_path / "kernelmosaic"
    package.mkdir()
    limits_file = tmp_path / "limits.json"
    monkeypatch.setattr("tools.reading.SRC", tmp_path)
    monkeypatch.setattr("tools.reading.LIMITS_FILE", limits_file)
    (package / "a.py").write_text(function_with(14), encoding="utf-8")
    main(["--write-limits"])
    assert Limits.parse(limits_file.read_text(encoding="utf-8")).branches == {
        "kernelmosaic/a.py:f": 14
    }
    assert "new or higher" not in capsys.readouterr().out
    (package / "a.py").write_text(function_with(15), encoding="utf-8")
    main(["--write-limits"])
    *_, advice, branches, tokens = capsys.readouterr().out.splitlines()
    assert advice == "These entries are new or higher than before; rewrite the code instead:"
    assert branches == "kernelmosaic/a.py:f: 15 branches"
    assert tokens.endswith("tokens per line")


# The library --------------------------------------------------------------------------------------


@cache
def library() -> list[Module]:
    return read_tree(SRC / "kernelmosaic", SRC)


@cache
def library_limits() -> Limits:
    return Limits.parse(LIMITS_FILE.read_text(encoding="utf-8"))


def test_no_line_is_too_wide():
    assert wide_line_faults(library()) == []


def test_no_function_has_too_many_branches():
    assert large_function_faults(library()) == []


def test_functions_with_many_branches_are_listed_and_become_fewer():
    assert listed_function_faults(library(), library_limits()) == []


def test_folders_read_as_agreed_or_come_nearer_to_it():
    assert folder_faults(library(), library_limits()) == []


def test_the_file_of_limits_is_as_the_tool_writes_it():
    assert LIMITS_FILE.read_text(encoding="utf-8") == library_limits().text()
