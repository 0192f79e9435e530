"""Colors by their roles on light and dark, the style of blocks, and the configuration of charts.

Blue is no attack, orange an attack or a loss, green better or aggregated, violet backdoor or privacy, gray not separated.
"""

from __future__ import annotations

from typing import Any

#: On light, on dark
TOKENS = {
    "ink": ("#18202c", "#e8ecf2"),
    "faint": ("#586273", "#a4aebc"),
    "line": ("#dde2e9", "#303844"),
    "ground": ("#ffffff", "#12161c"),
    "panel": ("#f6f8fa", "#1a2029"),
    "accent": ("#0b5cad", "#7db7f5"),
    "good": ("#0b7350", "#6fd0a8"),
    "warn": ("#8a5300", "#e9bb6b"),
    "bad": ("#b3261e", "#ff8f85"),
    "good-ground": ("#e7f5ef", "#14291f"),
    "warn-ground": ("#fdf3e1", "#2c2413"),
    "bad-ground": ("#fcebe9", "#331b19"),
    "band": ("#eaf3fb", "#18283a"),
    "blue": ("#1f6fae", "#66b7f0"),
    "orange": ("#c24e00", "#ff9d5c"),
    "green": ("#007a5a", "#4fd1a5"),
    "violet": ("#6a4fa8", "#b79cf0"),
    "gray": ("#707070", "#a8a8a8"),
}

#: A heat map with more panels has no tabs on a narrow page
MOST_TABS = 12

#: Opacity of the strongest color of a heat map on light and on dark, with which text keeps a contrast of 4.5 to 1
_STRONGEST = (0.7, 0.5)


def declare(dark: bool) -> str:
    """The tokens as custom properties of CSS."""
    tokens = " ".join(f"--{name}: {values[dark]};" for name, values in TOKENS.items())
    return f"{tokens} --strongest: {_STRONGEST[dark]};"


_TEXT = {"labelColor": "var(--faint)", "titleColor": "var(--faint)", "labelFontSize": 12, "titleFontSize": 12}

#: The configuration of every chart
CONFIG: dict[str, Any] = {
    "background": None,
    "mark": {
        "aria": False
    },  # the picture has a description; marks would be named one by one, and empty ones not at all
    "font": "Source Sans, system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "labelLimit": 400,
    },
    "text": {"color": "var(--ink)", "fontSize": 12},
    "title": {
        "color": "var(--ink)",
        "subtitleColor": "var(--faint)",
        "fontSize": 13,
        "subtitleFontSize": 12,
        "fontWeight": 600,
        "anchor": "start",
        "offset": 8,
    },
    "legend": _TEXT,
    "header": _TEXT,
}

#: How blocks look in HTML. Only one of a chart's two drawings is there at a time.
STYLE = """
.fg { color: var(--ink); font-size: 16px; line-height: 1.5; overflow-wrap: anywhere; }
.fg h1 { font-size: 27px; line-height: 1.22; margin: 0 0 8px; padding: 0; font-weight: 680; max-width: 36em; text-wrap: balance;
  border: 0; }
.fg h1 .good { color: var(--good); } .fg h1 .warn { color: var(--warn); } .fg h1 .bad { color: var(--bad); }
.fg h2 { font-size: 18.5px; line-height: 1.3; margin: 26px 0 4px; padding: 0; font-weight: 660; border: 0; }
.fg p { margin: 0 0 8px; max-width: 60em; } .fg .lead { font-size: 16.5px; margin-bottom: 14px; max-width: 52em; }
.fg .sub, .fg .note { color: var(--faint); font-size: 14px; } .fg code { font-size: 13px; background: var(--panel);
  color: var(--ink); border-radius: 4px; padding: 1px 5px; overflow-wrap: anywhere; }
.fg .trained { display: flex; flex-wrap: wrap; gap: 4px 14px; justify-content: space-between; align-items: center;
  color: var(--faint); font-size: 14px; margin-bottom: 8px; }
.fg .row { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: center; }
.fg .chip { border: 1px solid var(--line); border-radius: 999px; padding: 2px 11px; font-size: 13.5px;
  white-space: nowrap; }
.fg .chip.good { background: var(--good-ground); color: var(--good); border-color: transparent; }
.fg .chip.warn { background: var(--warn-ground); color: var(--warn); border-color: transparent; }
.fg .chip.bad { background: var(--bad-ground); color: var(--bad); border-color: transparent; }
.fg dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 0 22px; margin: 10px 0 16px;
  border-top: 1px solid var(--line); }
.fg dl > div { display: block; padding: 8px 0; border-bottom: 1px solid var(--line); }
.fg :is(dl, dt, dd) { padding: 0; } .fg dt { color: var(--faint); font-size: 12.5px; font-weight: 400; }
.fg dd span { display: block; }
.fg :is(dt, dd) { margin: 0; } .fg dd { font-size: 14.5px; line-height: 1.35; }
.fg .keys { display: flex; flex-wrap: wrap; gap: 4px 18px; color: var(--faint); font-size: 13.5px; margin: 2px 0 8px; }
.fg .keys i { display: inline-block; width: 11px; height: 11px; margin-right: 6px; vertical-align: -1px;
  background: var(--key); border: 0 solid var(--key); border-radius: 50%; }
.fg .keys i.ring { background: none; border-width: 2px; }
.fg .keys i.triangle { width: 0; height: 0; background: none; border-radius: 0; border: 6px solid transparent;
  border-top: 0; border-bottom: 10px solid var(--key); }
.fg .keys i.fall { width: 0; height: 0; background: none; border-radius: 0; border: 6px solid transparent;
  border-bottom: 0; border-top: 10px solid var(--key); }
.fg .keys i:is(.square, .diamond) { border-radius: 0; } .fg .keys i.diamond { rotate: 45deg; scale: .85; }
.fg .keys i.bar { width: 22px; height: 6px; border-radius: 0; opacity: .38; vertical-align: 2px; }
.fg .keys i.band { width: 22px; height: 12px; border: 1px solid var(--line); border-radius: 0; }
.fg .keys i.heat { width: 22px; height: 12px; border: 1px solid var(--line); border-radius: 2px; }
.fg .keys i.heat, .fg .panel td { --part: calc(100% * var(--strongest) * var(--heat));
  background: color-mix(in srgb, var(--orange) var(--part), transparent); }
.fg .keys i.none, .fg .panel td.none { background: var(--panel); border: 1px dashed var(--gray); }
.fg .panels { display: flex; flex-wrap: wrap; gap: 20px 26px; align-items: flex-start; }
.fg .tabs { display: none; gap: 6px; flex-wrap: wrap; margin: 4px 0 8px; }
.fg .tabs label { border: 1px solid var(--line); border-radius: 999px; padding: 2px 11px; font-size: 14px; }
.fg .tabs label:has(:checked) { background: var(--band); color: var(--accent); font-weight: 600; }
.fg .tabs input { position: absolute; opacity: 0; } .fg .tabs label:has(:focus-visible) { outline: 2px solid var(--accent); }
.fg .panel { max-width: 100%; overflow-x: auto; }
.fg .panel table { border-collapse: separate; border-spacing: 2px; font-variant-numeric: tabular-nums; margin: 0; }
.fg .panel caption { color: var(--ink); font-size: 14px; font-weight: 600; text-align: left; padding: 4px 0; min-width: 0; }
.fg .panel :is(th, td) { border: 0; vertical-align: middle; background-clip: padding-box; }
.fg .panel th { color: var(--ink); font-size: 13px; font-weight: 400; line-height: 1.2; padding: 2px 3px; max-width: 115px;
  overflow-wrap: break-word; }
.fg .panel thead th { vertical-align: bottom; text-align: center; font-size: 12px; }
.fg .panel :is(tbody th, thead th:first-child) { text-align: right; padding-right: 8px; max-width: 160px; }
.fg .panel td { min-width: 70px; height: 44px; padding: 0; border-radius: 3px; text-align: center; }
.fg .panel :is(td a, td > span) { display: block; padding: 4px 2px; color: var(--ink); text-decoration: none;
  line-height: 1.25; }
.fg .panel td a:is(:hover, :focus-visible) { outline: 2px solid var(--accent); outline-offset: -2px; border-radius: 3px; }
.fg .panel b { display: block; font-size: 14px; font-weight: 600; }
.fg .panel .none b { font-weight: 400; color: var(--faint); }
.fg .panel small { font-size: 11px; color: var(--ink); white-space: nowrap; }
.fg .panel .last :is(th, b) { font-weight: 700; }
.fg .check { display: grid; grid-template-columns: 128px minmax(0, 1fr); gap: 4px 14px; align-items: baseline;
  border-left: 3px solid var(--line); padding: 4px 0 4px 12px; margin: 8px 0; font-size: 14.5px; }
.fg .check.warn { border-color: var(--warn); } .fg .check.bad { border-color: var(--bad); }
.fg .check.good { border-color: var(--good); } .fg .check .chip { justify-self: start; white-space: normal; }
.fg .check > :nth-child(3) { grid-column: -2; }
.fg small { color: var(--faint); font-size: 13px; }
.fg a { color: var(--accent); } .fg a.button { display: inline-block; border: 1px solid var(--line); border-radius: 8px;
  padding: 3px 12px; text-decoration: none; font-size: 14px; }
.fg ins { background: var(--good-ground); color: var(--good); text-decoration: none; }
.fg del { background: var(--bad-ground); color: var(--bad); text-decoration: none; }
.fg table { border-collapse: collapse; font-size: 14.5px; }
.fg :is(th, td) { text-align: left; padding: 4px 18px 4px 0; border: 0; border-bottom: 1px solid var(--line); }
.fg .r { text-align: right; font-variant-numeric: tabular-nums; } .fg thead th { color: var(--faint); font-weight: 400; }
.fg h2 + .scroll caption { position: absolute; clip-path: inset(50%); }
.fg figure { margin: 6px 0; padding: 0; overflow: visible; }
.fg figure svg { display: block; max-width: none; overflow: visible; }
.fg .pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 8px 22px; margin: 8px 0; }
.fg .pictures figure { margin: 0; } .fg .pictures img { display: block; width: 100%; border-radius: 4px;
  image-rendering: pixelated; } .fg .pictures figcaption { color: var(--faint); font-size: 13px; }
.fg .columns { display: flex; flex-wrap: wrap; gap: 0 32px; } .fg .columns > * { flex: 1 1 480px; min-width: min(100%, 480px); }
.fg pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 10px 14px; overflow-x: auto;
  font-size: 13px; line-height: 1.45; max-height: 44em; color: var(--ink); }
.fg details { border-top: 1px solid var(--line); padding: 8px 0; font-size: 14.5px; }
.fg summary { cursor: pointer; color: var(--accent); }
.narrow { display: none; }
@media (max-width: 640px) { .wide { display: none; } .narrow { display: block; } .fg h1 { font-size: 22px; }
  .fg .panel :is(tbody th, thead th:first-child) { position: sticky; left: 0; background: var(--ground); z-index: 1; }
  .fg .tabs { display: flex; } .fg:has(.tabs) .panel { display: none; }
  .fg .panel td { min-width: 60px; } .fg .panel :is(tbody th, thead th) { max-width: 80px; font-size: 11.5px; padding: 2px; }
  .fg dl { grid-template-columns: 1fr 1fr; } .fg .check { grid-template-columns: 1fr; } .fg .lead { font-size: 15.5px; } }
"""
STYLE += " ".join(f".fg .h{step} {{ --heat: {step / 20}; }}" for step in range(21))
#: On a narrow page one panel at a time, the one whose tab is checked
STYLE += "@media (max-width: 640px) { " + " ".join(
    f".fg:has(.tabs label:nth-child({one}) :checked) .panel:nth-child({one}) {{ display: block; }}"
    for one in range(1, MOST_TABS + 1)
) + " }\n"  # fmt: skip
STYLE += "".join(f".fg .keys i.{name} {{ --key: var(--{name}); }} " for name in TOKENS)
