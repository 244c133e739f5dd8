"""The frame of the overview of many tables: its styles, and the script that sorts its rows."""

from typing import Final

from liquidlog.report.style import BASICS, COLORS

SORTING: Final = """
"use strict";
const table = document.querySelector("table");
const heads = Array.from(table.tHead.rows[0].cells);
const valueOf = (body, column) => body.rows[0].cells[column].dataset.value;
const before = (one, other, kind) =>
  kind === "text" ? one.localeCompare(other) : Number(one) - Number(other);
const compared = (column, kind, down) => (a, b) => {
  const [one, other] = [valueOf(a, column), valueOf(b, column)];
  if (one === undefined || other === undefined) {
    return (one === undefined) - (other === undefined) || a.dataset.place - b.dataset.place;
  }
  return (down ? -1 : 1) * before(one, other, kind) || a.dataset.place - b.dataset.place;
};
heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const first = head.dataset.kind === "text" || column === 1 ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    heads.forEach(one => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    table.append(...Array.from(table.tBodies)
      .sort(compared(column, head.dataset.kind, order === "descending")));
  });
});
table.classList.add("sortable");
"""

FLEET_PAGE: Final = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title>
<style>
"""
    + COLORS
    + BASICS
    + """
body { max-width: 76rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .6rem;
  margin: 1rem 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .75rem; overflow-wrap: anywhere; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.tile.main b { color: var(--main); }
.tile.worse b { color: var(--bad); }
.tile span { color: var(--soft); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; margin-top: 1.5rem; font-size: .9rem;
  table-layout: fixed; }
th, td { text-align: right; vertical-align: top; padding: .3rem .5rem; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
thead th { vertical-align: bottom; border-bottom: 2px solid var(--line); color: var(--soft);
  font-weight: 600; overflow-wrap: normal; }
thead th:first-child, th[scope=row] { text-align: left; width: 34%; }
th[scope=row] { font-weight: 600; }
th[scope=row] small { display: block; font-weight: 400; color: var(--soft); font-size: .8rem; }
thead button { all: unset; cursor: pointer; }
thead button:hover { color: var(--text); }
thead button:focus-visible { outline: 2px solid var(--main); outline-offset: 2px; }
[aria-sort=ascending] button::after { content: " \\2191"; }
[aria-sort=descending] button::after { content: " \\2193"; }
a { color: var(--main); }
tbody { border-bottom: 1px solid var(--line); }
tbody tr:first-child > * { padding-top: .6rem; }
.why td { text-align: left; color: var(--soft); font-size: .85rem; padding: 0 .5rem .6rem; }
.rewrite td[data-name=Action] { color: var(--main); font-weight: 600; }
.fail td[data-name=Action], .fail .why td { color: var(--bad); }
.leave td[data-name=Action] { color: var(--good); }
@media (max-width: 48rem) {
  table, tbody, tr, td, th[scope=row], thead { display: block; width: auto; }
  thead { display: none; }
  .sortable thead { display: block; }
  .sortable thead::before { content: "Sort by"; font-size: .85rem; color: var(--soft); }
  thead tr { display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
  thead th, thead th:first-child { display: block; width: auto; padding: 0; border: 0; }
  tbody { padding: .5rem 0; }
  tbody td, tbody tr:first-child > td { display: flex; justify-content: space-between; gap: 1rem;
    padding: .1rem .5rem; }
  tbody td::before { content: attr(data-name); color: var(--soft); }
  tbody .why td { display: block; padding: .3rem .5rem .5rem; }
  tbody .why td::before { content: none; } }
@media print { thead { display: table-header-group; } tbody { break-inside: avoid; } }
</style>
</head>
<body>
<header><h1>$heading</h1><p>$subtitle</p></header>
<div class="tiles">$tiles</div>
$hint
<table>
<thead><tr>$headings</tr></thead>
$rows
</table>
<script>$sorting</script>
</body>
</html>
"""
)
