"""What the papers claim in words, and which figures decide whether it held here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmosaic.experiments.checks import (
    NOT_RUN,
    UNDECIDED,
    Alike,
    AsPrinted,
    Between,
    Check,
    Compare,
    Most,
    Verdict,
)
from kernelmosaic.experiments.protocols.random_splits import COMMON
from kernelmosaic.experiments.reading import Run


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, the tables that bear on it, and the check that judges it on each of them."""

    paper: str
    text: str
    tables: tuple[str, ...]
    check: Check


@dataclass(frozen=True)
class Judged:
    """A claim, the experiment it was judged by (empty if there is none), and the verdict."""

    claim: Claim
    experiment: str
    verdict: Verdict


_MIXED, _LOCAL, _SMOOTH = "kP-kG", "kL-kL-kL", "kL-kP"
_PENS = "DYN-STA4-STA8-STA16"
_DIGITS = "FAC-FOU-KAR-MOR-PIX-ZER"
_POWERS = "kL-kP2-kP3-kP4-kP5"
_BINARY, _MULTI = "Tables 2-5, 17", "Tables 6-16"
_CONVEX = ("SDP_theta", "QCQP_theta", "SILP_theta")
_RBF = "10 RBF"


def _000(text: str, table: str, check: Check) -> Claim:
    return Claim("000", text, (table,), check)


_LOCALIZED = (
    _000(
        "LMKL stores fewer support vectors than MKL (quadratic and Gaussian kernel)",
        "Table 1",
        Compare("sv_percent", ("LMKL", _MIXED), ("MKL", _MIXED), "less"),
    ),
    _000(
        "LMKL is at least as accurate as MKL (quadratic and Gaussian kernel)",
        "Table 1",
        Compare("accuracy", ("LMKL", _MIXED), ("MKL", _MIXED), "no less"),
    ),
    _000(
        "Wilcoxon's verdicts on LMKL against MKL are the printed ones: accuracy a tie, support vectors a win",
        "Table 1",
        AsPrinted("LMKL vs MKL", ("wilcoxon:accuracy", "wilcoxon:sv_percent")),
    ),
    _000(
        "Three local linear kernels are more accurate than one linear kernel",
        "Table 1",
        Compare("accuracy", ("LMKL", _LOCAL), ("SVM", "kL"), "more"),
    ),
    _000(
        "Three local linear kernels need no more support vectors than one linear kernel",
        "Table 1",
        Compare("sv_percent", ("LMKL", _LOCAL), ("SVM", "kL"), "no more"),
    ),
    _000(
        "MKL gives weight 0.30 to the linear and 0.70 to the quadratic kernel on GAUSS4",
        "inline 4.1",
        AsPrinted("MKL", ("weight:kL", "weight:kP"), _SMOOTH),
    ),
    _000(
        "MKL uses only the quadratic kernel on BANANA",
        "inline 4.2",
        AsPrinted("MKL", ("weight:kL", "weight:kP"), _SMOOTH),
    ),
    _000(
        "LMKL is more accurate than MKL on BANANA (linear and quadratic kernel)",
        "inline 4.2",
        Compare("accuracy", ("LMKL", _SMOOTH), ("MKL", _SMOOTH), "more", "LMKL vs MKL"),
    ),
    _000(
        "LMKL stores fewer support vectors than MKL on BANANA (linear and quadratic kernel)",
        "inline 4.2",
        Compare("sv_percent", ("LMKL", _SMOOTH), ("MKL", _SMOOTH), "less", "LMKL vs MKL"),
    ),
    _000(
        "Three local linear kernels are more accurate on GAUSS4 than a Gaussian kernel",
        "inline 4.1",
        Compare("accuracy", ("LMKL", _LOCAL), ("SVM", "kG"), "more"),
    ),
)

_SLIDES = (
    Claim(
        "001",
        "Paying attention to costs makes cheaper models (CCMKL against MKL)",
        ("slide representation selection",),
        Compare("total_cost", ("CCMKL", _PENS), ("MKL", _PENS), "less", "CCMKL vs MKL"),
    ),
    Claim(
        "001",
        "CCMKL is as accurate as MKL",
        ("slide representation selection",),
        Compare("accuracy", ("CCMKL", _PENS), ("MKL", _PENS), "no less", "CCMKL vs MKL"),
    ),
    Claim(
        "001",
        "Local regression has no larger error than the best single kernel",
        ("slide WHITEWINE", "slide CONCRETE"),
        Compare("mse", ("LMKL", _POWERS), ("SVR", "*"), "no more"),
    ),
    Claim(
        "001",
        "Local regression stores fewer support vectors than the best single kernel",
        ("slide WHITEWINE", "slide CONCRETE"),
        Compare("sv_percent", ("LMKL", _POWERS), ("SVR", "*"), "less"),
    ),
    Claim(
        "001",
        "LMKL stores fewer support vectors than MKL on six representations of digits",
        ("slide MULTIFEAT",),
        Compare("sv_percent", ("LMKL", _DIGITS), ("MKL", _DIGITS), "less", "LMKL vs MKL"),
    ),
    Claim(
        "001",
        "LMKL is more accurate than MKL on GAUSS4",
        ("slide GAUSS4",),
        Compare("accuracy", ("LMKL", _SMOOTH), ("MKL", _SMOOTH), "more", "LMKL vs MKL"),
    ),
)

_REGULARIZED = (
    Claim(
        "002",
        "RMKL uses fewer kernels than MKL",
        ("Table 4",),
        Compare("active_kernels", ("RMKL", _DIGITS), ("MKL", _DIGITS), "less"),
    ),
    Claim(
        "002",
        "RMKL is as accurate as MKL",
        ("Table 4",),
        Compare("accuracy", ("RMKL", _DIGITS), ("MKL", _DIGITS), "no less", "RMKL vs MKL"),
    ),
    Claim(
        "002",
        "RMKL needs 15 to 35 trainings where a grid of three levels needs 243",
        ("Table 4",),
        Between("n_solver_calls", ("RMKL",), 15, 35, least_replicates=1),
    ),
)

_BILINEAR = (
    Claim(
        "003",
        "Bilinear MKL is as accurate as one versus rest",
        ("Figure 1",),
        Compare("accuracy", ("bilinear", _RBF), ("one versus rest", _RBF), "no less"),
    ),
    Claim(
        "003",
        "Bilinear MKL is as accurate as shared weights",
        ("Figure 1",),
        Compare("accuracy", ("bilinear", _RBF), ("shared weights", _RBF), "no less"),
    ),
    Claim(
        "003",
        "Bilinear MKL is the fastest",
        ("Figure 1",),
        Most("seconds", "bilinear", ("bilinear", "one versus rest", "shared weights"), least=True),
    ),
    Claim(
        "003",
        "Bilinear MKL is faster than shared weights",
        ("Figure 1",),
        Compare("seconds", ("bilinear", _RBF), ("shared weights", _RBF), "less"),
    ),
)

_DISCRIMINANT = (
    Claim(
        "004",
        "Learning the kernel by SILP is faster than choosing it by double cross-validation of the discriminant",
        (_BINARY, _MULTI),
        Compare("time", ("SILP_theta", _RBF), ("RKDA_K_lambda", _RBF), "less"),
    ),
    Claim(
        "004",
        "Learning the kernel by SILP is faster than double cross-validation of a support vector machine",
        (_BINARY, _MULTI),
        Compare("time", ("SILP_theta", _RBF), ("SVM_K_C", _RBF), "less"),
    ),
    Claim("004", "Of the three programs SDP is the slowest", (_MULTI,), Most("time", "SDP_theta", _CONVEX)),
    Claim(
        "004", "Of the three programs SILP is the fastest", (_MULTI,), Most("time", "SILP_theta", _CONVEX, least=True)
    ),
    Claim(
        "004",
        "SDP, QCQP and SILP agree in accuracy (within one point)",
        (_BINARY, _MULTI),
        Alike(COMMON, _CONVEX, 1.0),
    ),
    Claim(
        "004",
        "Learning λ is as good as fixing it",
        (_BINARY, _MULTI),
        Compare("accuracy", ("SILP_theta_lambda", _RBF), ("SILP_theta", _RBF), "no less"),
    ),
    Claim(
        "004",
        "The learned kernel is as accurate as double cross-validation of the discriminant",
        (_BINARY, _MULTI),
        Compare(COMMON, ("SILP_theta", _RBF), ("RKDA_K_lambda", _RBF), "no less"),
    ),
    Claim(
        "004",
        "The jointly learned vector machines SM1 and SM2 store most of the training samples of all sets but cancer",
        (_BINARY,),
        Between("sv_percent", ("SM1", "SM2"), low=50, but=("cancer",)),
    ),
)

CLAIMS: tuple[Claim, ...] = (*_LOCALIZED, *_SLIDES, *_REGULARIZED, *_BILINEAR, *_DISCRIMINANT)


def judge(run: Run, claims: Sequence[Claim] = CLAIMS) -> list[Judged]:
    """Return every claim with its verdict on each experiment that bears on it; a quick look decides none."""
    quick = run.facts["scale"]["name"] != "full"
    judged = []
    for claim in claims:
        results = run.of_table(claim.paper, *claim.tables)
        for one in results:
            verdict = claim.check(one.rows)
            if quick and verdict.outcome != UNDECIDED:
                verdict = Verdict(UNDECIDED, f"a quick look is no evidence: {verdict.statistic}")
            judged.append(Judged(claim, one.experiment.name, verdict))
        if not results:
            judged.append(Judged(claim, "", Verdict(NOT_RUN, "its table is not in this run")))
    return judged
