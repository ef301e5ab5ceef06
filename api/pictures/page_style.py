"""The style sheet of an inspection's page: light and dark, from a phone's width up."""

CSS = """
:root { color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #17191c; --soft: #565d66; --line: #d5d9df;
  --blue: #0b6bb3; --orange: #c65102; --green: #0a7f5c; --violet: #8a3fa0; --gold: #9a6b00;
  --grey: #7b838d; --empty: #e3e6ea; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --card: #1d2127; --ink: #eceff3; --soft: #a9b1bb; --line: #39404a;
  --blue: #62b6f5; --orange: #ff9457; --green: #3fd0a0; --violet: #d79be8; --gold: #e9bd4f;
  --grey: #8f98a3; --empty: #2c323a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem clamp(.75rem, 3vw, 2rem) 3rem; max-width: 72rem;
  background: var(--paper); color: var(--ink); line-height: 1.45;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .2rem; }
p { margin: .2rem 0 .8rem; color: var(--soft); max-width: 46rem; }
header p { margin: .2rem 0 1rem; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .9rem clamp(.7rem, 2vw, 1.1rem); margin: 0 0 1rem; }
.tiles { display: grid; gap: .6rem; grid-template-columns: repeat(4, minmax(0, 1fr));
  margin: 0 0 1rem; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .55rem .75rem; }
.tile dt { color: var(--soft); font-size: .82rem; }
.tile dd { margin: 0; font-size: 1.3rem; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.tile small { display: block; color: var(--soft); font-size: .78rem; }
.row { display: grid; gap: 0 .8rem; align-items: center; padding: .22rem 0;
  grid-template-columns: 8.5rem minmax(0, 1fr) 13rem; }
.row .amount { color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums; }
.row .what { font-size: .92rem; overflow-wrap: anywhere; }
.row .pic { min-width: 0; }
svg { display: block; width: 100%; overflow: visible; background: var(--empty);
  border-radius: 2px; }
.axis { position: relative; height: 1.35rem; font-size: .78rem; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis span.low { transform: none; left: 0; }
.axis span.high { transform: none; left: auto; right: 0; }
.axis.keys { display: flex; justify-content: space-between; gap: 1rem; height: auto; }
.axis.keys span { position: static; transform: none; white-space: normal;
  overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .3rem 0 .6rem; padding: 0;
  list-style: none; font-size: .85rem; color: var(--soft); }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin-right: .4em; vertical-align: -.05em; }
.blue { fill: var(--blue); } .orange { fill: var(--orange); } .green { fill: var(--green); }
.violet { fill: var(--violet); } .gold { fill: var(--gold); } .grey { fill: var(--grey); }
.empty { fill: var(--empty); } .ink { fill: var(--ink); }
.failed { fill: none; stroke: var(--ink); stroke-width: 2px; vector-effect: non-scaling-stroke; }
rect.edged { stroke: var(--card); stroke-width: 1px; vector-effect: non-scaling-stroke; }
line { stroke: var(--line); stroke-width: 1px; vector-effect: non-scaling-stroke; }
line.mark { stroke: var(--ink); stroke-width: 2px; }
line.job { stroke-width: 2px; }
line.blue { stroke: var(--blue); } line.orange { stroke: var(--orange); }
line.green { stroke: var(--green); } line.violet { stroke: var(--violet); }
line.gold { stroke: var(--gold); } line.grey { stroke: var(--grey); }
details { margin-top: .6rem; } summary { cursor: pointer; color: var(--blue); font-size: .9rem; }
.scroll { overflow-x: auto; margin-top: .4rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; vertical-align: top; }
th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
td.text, th.text { text-align: left; } td.wide { white-space: normal; overflow-wrap: anywhere;
  min-width: 12rem; }
.none { color: var(--soft); font-style: italic; }
ul.notes { margin: .2rem 0; padding-left: 1.2rem; } ul.notes li { overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  .row { grid-template-columns: minmax(0, 1fr) auto; padding: .4rem 0; }
  .row .pic { grid-column: 1 / -1; grid-row: 2; }
  .row .amount { text-align: right; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .axis span.some { display: none; } }
@media print { section { break-inside: avoid; } }
"""
