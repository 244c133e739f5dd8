"""The frame of the report's page: its head, and its styles for light, dark and paper."""

from typing import Final

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --back: #fff; --text: #1c2330; --soft: #5b6678; --line: #d5dbe5;
  --panel: #f5f7fa; --main: #1f6fb2; --stable: #2a7f62; --partial: #1f6fb2; --fresh: #d9822b;
  --other: #8a5fb0; --bad: #b3412e; --good: #2a7f62; }
@media (prefers-color-scheme: dark) { :root { --back: #12161c; --text: #e6eaf0; --soft: #9aa5b5;
  --line: #333c49; --panel: #1b212a; --main: #5aa9e6; --stable: #58c39d; --partial: #5aa9e6;
  --fresh: #f0a860; --other: #bb94dd; --bad: #f08a76; --good: #58c39d; } }
@media print { :root { color-scheme: light; --back: #fff; --text: #000; --soft: #444; --line: #bbb;
  --panel: #fff; --main: #1f6fb2; --stable: #2a7f62; --partial: #1f6fb2; --fresh: #d9822b;
  --other: #8a5fb0; --bad: #b3412e; --good: #2a7f62; } section { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: .8rem 0 .3rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.hint, header p { color: var(--soft); font-size: .9rem; }
.good { color: var(--good); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr));
  gap: .6rem; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem; }
.tile b { display: block; font-size: 1.25rem; }
.tile span { color: var(--soft); font-size: .85rem; }
.finding { border-left: 4px solid var(--bad); background: var(--panel); padding: .5rem .8rem;
  margin: .6rem 0; }
.finding h3 { margin: 0; }
pre { margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
code { font: .9rem/1.4 ui-monospace, monospace; }
.frame { border: 1px solid var(--line); background: var(--panel); padding: 2px; }
svg { display: block; width: 100%; }
.s-stable, .k-stable { fill: var(--stable); background: var(--stable); }
.s-partial, .k-partial { fill: var(--partial); background: var(--partial); }
.s-unclustered, .k-unclustered { fill: var(--fresh); background: var(--fresh); }
.s-other_columns, .s-other_provider, .k-other_columns, .k-other_provider { fill: var(--other);
  background: var(--other); }
.heat, .bar { fill: var(--main); }
.box { fill: var(--main); fill-opacity: .18; stroke: var(--main);
  vector-effect: non-scaling-stroke; }
.line { fill: none; stroke: var(--main); stroke-width: 2; vector-effect: non-scaling-stroke; }
.ticks { position: relative; height: 1.5rem; font-size: .8rem; color: var(--soft); }
.ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.ticks span:first-child { transform: none; }
.ticks span:last-child { transform: translateX(-100%); }
.ends { display: flex; justify-content: space-between; font-size: .8rem; color: var(--soft); }
.keys span { margin-right: 1rem; font-size: .85rem; }
.keys i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1.5rem; }
.bars > div { display: grid; grid-template-columns: 6.5rem 1fr 5rem; gap: .5rem;
  align-items: center; font-size: .85rem; }
.bars span:last-child { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums; }
@media screen { .scroll td { white-space: nowrap; } }
@media (max-width: 40rem) { .ticks span:not(:first-child):not(:last-child) { display: none; } }
</style>
</head>
<body>
<header><h1>$heading</h1><p>$subtitle</p></header>
$body
</body>
</html>
"""
