"""The style of the report in light and dark, and in print. It uses the fonts of the reader's system."""

from __future__ import annotations

from fedguard.bench.pages import tokens

STYLE = (
    f"""
:root {{ color-scheme: light dark; {tokens.declare(dark=False)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {tokens.declare(dark=True)} }} }}
@media print {{ :root {{ color-scheme: light; {tokens.declare(dark=False)} }} }}
{tokens.STYLE}"""
    """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.5rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
header { color: var(--faint); font-weight: 600; overflow-wrap: anywhere; padding-bottom: .6rem; }
h2 { font-size: 1.4rem; margin: 3rem 0 .8rem; padding-top: .6rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.1rem; margin: 2rem 0 .6rem; overflow-wrap: anywhere; }
h4 { font-size: 1rem; margin: 1.4rem 0 .4rem; color: var(--faint); overflow-wrap: anywhere; }
p, li { max-width: 52rem; overflow-wrap: anywhere; }
a { color: var(--accent); }
nav { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .4rem 1.2rem;
  margin-bottom: 1.2rem; }
nav ol { margin: 0; padding-left: 1.6rem; columns: 15rem; column-gap: 2.5rem; }
nav.pages ol { columns: auto; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; list-style: none; padding: 0; }
nav [aria-current] { color: var(--ink); font-weight: 600; text-decoration: none; }
.lead { font-size: 1.12rem; }
.note { color: var(--faint); font-size: .92rem; }
dl { margin: .8rem 0; }
dl div { display: grid; grid-template-columns: 13rem 1fr; gap: 0 1rem; padding: .25rem 0; }
dl div { border-bottom: 1px solid var(--line); }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--faint); padding-bottom: .4rem; min-width: min(44rem, 85vw); }
td div + div { margin-top: .5rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
th { font-weight: 600; } .l { text-align: left; } .r { text-align: right; white-space: nowrap; }
td.l { max-width: 34rem; overflow-wrap: break-word; }
tr.last th, tr.last td { border-top: 2px solid var(--line); font-weight: 600; }
.refused, .missing { color: var(--warn); font-style: italic; } .failed { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; overflow-x: auto; padding: 0 1rem; }
figure svg, figure img { max-width: 100%; height: auto; }
figure svg { overflow: visible; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--accent); }
figure img { image-rendering: pixelated; background: #fff; }
figcaption { color: var(--faint); font-size: .92rem; max-width: 52rem; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .8rem 1rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.4; }
@media (max-width: 40rem) { body { padding: .8rem; } dl div { grid-template-columns: 1fr; } }
@page { size: A4 landscape; margin: 10mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 9pt; line-height: 1.35; }
  nav, #cells, details { display: none; }
  .fg h1 { font-size: 15pt; margin: 0 0 2mm; } .fg h2, h2 { font-size: 12pt; margin: 4mm 0 2mm; padding-top: 1mm; }
  h3 { font-size: 10pt; margin: 3mm 0 1mm; } p, ul { margin: 1mm 0; } p, li, figcaption { max-width: none; }
  .lead { font-size: 11pt; } .note, figcaption { font-size: 8pt; }
  figure { margin: 1mm 0; padding: 0 6mm; } figure svg { max-height: 70mm; max-width: 190mm; width: auto; }
  #breakdown figure svg { max-height: 130mm; max-width: 250mm; }
  dl { columns: 2; margin: 1mm 0; } dl div { grid-template-columns: 9rem 1fr; padding: .5mm 0; break-inside: avoid; }
  #configuration pre { columns: 4; font-size: 6pt; line-height: 1.2; padding: 1mm; }
  .scroll, figure, pre { overflow: visible; } pre { white-space: pre-wrap; }
  .scroll { margin: 1mm 0; } table { font-size: 7.5pt; } th, td { padding: .3mm 1.5mm; } thead { display: table-header-group; }
  .r { white-space: normal; } caption { min-width: 0; }
  h2, h3, h4, caption { break-after: avoid; } figure, tr { break-inside: avoid; }
}
"""
)
