"""What stands around every report: the document, its style for screens, phones and paper, and the filter of tables."""

from __future__ import annotations

from string import Template

SHELL = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="kernelmosaic $version">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #57606a; --line: #d0d7de; --band: #f6f8fa;
  --link: #0550ae; --good: #116329; --warn: #7d4e00; --bad: #a40e26; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9da7b3; --line: #30363d; --band: #161b22;
    --link: #79c0ff; --good: #56d364; --warn: #e3b341; --bad: #ff9492; }
}
* { box-sizing: border-box; }
body { font: 1rem/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: $width; margin: 0 auto; padding: 1rem 1.25rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .4rem; border-top: 1px solid var(--line); }
p, li { max-width: 46rem; }
.lead { font-size: 1.08rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .8rem 0; }
code, pre { font: .92em/1.5 ui-monospace, monospace; background: var(--band); border-radius: 4px; }
code { padding: .1em .3em; overflow-wrap: anywhere; }
pre { padding: .7rem .9rem; border: 1px solid var(--line); }
pre code { padding: 0; background: none; overflow-wrap: normal; }
.scroll { overflow-x: auto; }
.table { margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .5rem;
  max-width: min(46rem, calc(100vw - 2.5rem)); }
th, td { padding: .32rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { white-space: nowrap; border-bottom: 2px solid var(--soft); vertical-align: bottom; }
tbody th { font-weight: normal; }
tbody tr:nth-child(even) { background: var(--band); }
.n { text-align: right; white-space: nowrap; }
.good, .warn, .bad { white-space: nowrap; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.good::before { content: "✓ "; } .warn::before { content: "! "; } .bad::before { content: "✗ "; }
summary { cursor: pointer; color: var(--link); padding: .2rem 0; }
.filter { margin: .3rem 0; color: var(--soft); }
.filter input { font: inherit; padding: .25rem .5rem; width: 14rem; max-width: 100%; color: var(--ink);
  background: var(--paper); border: 1px solid var(--soft); border-radius: 4px; }
.pictures { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); }
.picture { max-width: 46rem; margin: 1rem 0; }
figure { margin: 0; }
figcaption { color: var(--soft); font-size: .93rem; }
img { width: 100%; height: auto; background: white; border-radius: 4px; }
.picture img { width: auto; max-width: 100%; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); color: var(--soft); font-size: .9rem; }
@media screen and (max-width: 40rem) { table { font-size: .92rem; } th, td { padding: .3rem .45rem; } }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #333; --line: #999; --band: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .filter, nav { display: none; }
  .scroll { overflow: visible; }
  tr, figure { break-inside: avoid; }
  h2 { break-after: avoid; }
}
</style>
</head>
<body>
<header><h1>$title</h1>
$lead
$contents</header>
<main>
$body
</main>
<footer><p>Made by kernelmosaic $version.</p></footer>
$script</body>
</html>
""")

FILTER_SCRIPT = """<script>
for (const box of document.querySelectorAll(".filter input")) {
  const table = box.closest(".table"), count = table.querySelector("output");
  const rows = [...table.querySelectorAll("tbody tr")];
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.value = `${shown} of ${rows.length}`;
  });
}
</script>
"""

FOLD_SCRIPT = """<script>
const folds = () => document.querySelectorAll("details");
addEventListener("beforeprint", () => {
  for (const fold of folds()) { fold.dataset.was = fold.open; fold.open = true; }
});
addEventListener("afterprint", () => { for (const fold of folds()) fold.open = fold.dataset.was === "true"; });
</script>
"""
