"""The frame of the report's page: its head, and its styles for light, dark and paper.

The overview of many tables shares its colors and basic styles.
"""

from typing import Final

COLORS: Final = """\
:root { color-scheme: light dark; --back: #fff; --text: #1c2330; --soft: #5b6678; --line: #d5dbe5;
  --panel: #f5f7fa; --main: #1f6fb2; --now: #9aa3b2; --stable: #2a7f62; --partial: #1f6fb2;
  --fresh: #d9822b; --other: #8a5fb0; --bad: #a83a27; --good: #23705a; }
@media (prefers-color-scheme: dark) { :root { --back: #12161c; --text: #e6eaf0; --soft: #9aa5b5;
  --line: #333c49; --panel: #1b212a; --main: #5aa9e6; --now: #6b7688; --stable: #58c39d;
  --partial: #5aa9e6; --fresh: #f0a860; --other: #bb94dd; --bad: #f08a76; --good: #58c39d; } }
"""

BASICS: Final = """\
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.hint, header p { color: var(--soft); font-size: .9rem; max-width: 46rem; }
"""

PAGE: Final = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
"""
    + COLORS
    + BASICS
    + """
@media print { :root { color-scheme: light; --back: #fff; --text: #000; --soft: #444; --line: #bbb;
  --panel: #fff; --main: #1f6fb2; --now: #9aa3b2; --stable: #2a7f62; --partial: #1f6fb2;
  --fresh: #d9822b; --other: #8a5fb0; --bad: #a83a27; --good: #23705a; }
  .answer, .reader, .finding, figure, .tile, .plot, svg { break-inside: avoid; }
  h2, h3 { break-after: avoid; } i { print-color-adjust: exact; } }
body { max-width: 62rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.75rem 0 .4rem; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: 1.1rem 0 .3rem; overflow-wrap: anywhere; }
small { font-size: .85em; color: var(--soft); }
header code { font-size: .8rem; overflow-wrap: anywhere; }
.good { color: var(--good); }
.worse { color: var(--bad); }
.answer { margin: 1.5rem 0 0; padding: 1.1rem 1.25rem 1.25rem; background: var(--panel);
  border: 1px solid var(--line); border-left: 6px solid var(--soft); border-radius: 6px; }
.answer.rewrite { border-left-color: var(--main); }
.answer.leave { border-left-color: var(--good); }
.answer h2 { font-size: 2.1rem; line-height: 1.15; margin: 0 0 .4rem; }
.answer .question { margin: 0; color: var(--soft); font-size: .9rem; }
.answer .reason { font-size: 1.05rem; max-width: 46rem; }
.figure { font-size: 1.35rem; font-weight: 600; line-height: 1.25; margin: 0 0 .3rem; }
dl { margin: .6rem 0 0; font-size: .9rem; }
dl div { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem;
  padding: .2rem 0; border-bottom: 1px solid var(--line); }
dt { color: var(--soft); }
dd { margin: 0 0 0 auto; text-align: right; font-variant-numeric: tabular-nums; }
.reading { display: grid; grid-template-columns: 2.6rem minmax(4rem, 1fr) auto; gap: .25rem .6rem;
  align-items: center; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .35rem 0; }
.reading .side { color: var(--soft); }
.reading .amount { min-width: 9.5rem; text-align: right; }
.reader { padding: .6rem 0; border-bottom: 1px solid var(--line); display: grid;
  grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 0 1.5rem; }
.reader > :nth-child(1) { grid-area: 1 / 1; }
.reader > :nth-child(2) { grid-area: 2 / 1; }
.reader > .reading { grid-area: 1 / 2; align-self: start; }
.reader > .range { grid-area: 2 / 2; text-align: right; max-width: none; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .6rem; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .75rem; overflow-wrap: anywhere; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; }
.finding { border-left: 4px solid var(--bad); background: var(--panel); padding: .6rem .9rem;
  margin: .6rem 0; }
.finding h3 { margin: 0; }
pre { margin: .4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
code { font: .9rem/1.45 ui-monospace, monospace; }
.command { background: var(--back); border: 1px solid var(--line); border-radius: 4px;
  padding: .5rem .75rem; user-select: all; }
pre span { white-space: nowrap; }
.frame { border: 1px solid var(--line); background: var(--panel); }
svg { display: block; width: 100%; }
.s-stable, .k-stable { fill: var(--stable); background: var(--stable); }
.s-partial, .k-partial { fill: var(--partial); background: var(--partial); }
.s-unclustered, .k-unclustered { fill: var(--fresh); background: var(--fresh); }
.s-other_columns, .s-other_provider, .k-other_columns, .k-other_provider { fill: var(--other);
  background: var(--other); }
.k-main { background: var(--main); }
.heat, .bar, .area { fill: var(--main); }
.heat, rect { shape-rendering: crispEdges; }
.now, .before .area { fill: var(--now); }
.box { fill: var(--main); fill-opacity: .18; stroke: var(--main); stroke-width: 1;
  vector-effect: non-scaling-stroke; }
.rule { stroke: var(--line); vector-effect: non-scaling-stroke; }
.line { fill: none; stroke: var(--main); stroke-width: 2; vector-effect: non-scaling-stroke; }
.spread { fill: none; stroke: var(--text); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .9rem; font-weight: 600; margin: .4rem 0; }
.plot { display: flex; gap: .4rem; }
.plot > :last-child { flex: 1; min-width: 0; }
.upwards { position: relative; flex: none; max-width: 30%; font-size: .8rem;
  color: var(--soft); text-align: right; font-variant-numeric: tabular-nums; }
.upwards span { position: absolute; right: 0; transform: translateY(50%); white-space: nowrap;
  line-height: 1.15; }
.upwards span:first-child { transform: none; }
.upwards span:last-child { transform: translateY(100%); }
.ticks span, .upwards span { max-width: 49%; overflow: hidden; text-overflow: ellipsis; }
.upwards span { max-width: 100%; }
.ticks { position: relative; height: 1.5rem; font-size: .8rem; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.ticks span:first-child { transform: none; }
.ticks span:last-child { transform: translateX(-100%); }
.ends { display: flex; justify-content: space-between; gap: .5rem; font-size: .8rem;
  color: var(--soft); text-align: center; font-variant-numeric: tabular-nums; }
.ends span:first-child { text-align: left; }
.ends span:last-child { text-align: right; }
.keys span { display: inline-block; margin-right: 1.1rem; font-size: .85rem; color: var(--soft); }
.keys i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem;
  vertical-align: -.05rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
  gap: 1rem 2rem; }
.pair > * { min-width: 0; }
.bars > div { display: grid; grid-template-columns: 6.5rem 1fr 4rem; gap: .5rem;
  align-items: center; font-size: .85rem; }
.bars span:last-child { text-align: right; font-variant-numeric: tabular-nums; }
details { margin: .6rem 0 0; }
summary { color: var(--soft); font-size: .9rem; cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums; }
@media screen { .scroll td { white-space: nowrap; } }
@media (max-width: 40rem) {
  .reader { grid-template-columns: minmax(0, 1fr); }
  .reader > :nth-child(n) { grid-area: auto; }
  .answer { padding: .9rem 1rem 1rem; }
  .answer h2 { font-size: 1.8rem; }
  .reading .amount { min-width: 0; }
  .reading .amount small { display: block; }
  .ticks span:not(:first-child):not(:last-child) { display: none; } }
</style>
</head>
<body>
<header><h1>$heading</h1><p>$subtitle</p>$location</header>
$body
</body>
</html>
"""
)
