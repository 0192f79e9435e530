"""One page, four renderings: a page yields blocks, and each renderer draws every type of block.

blocks.py       the types of blocks: the contract between pages and renderers; a page knows no renderer, a renderer no page
escape.py       names from runs as plain text, for every renderer
tokens.py       colors by role, light and dark; the style of blocks; the configuration of charts
elements.py     HTML as trees of elements, whose text is escaped when they are written out
svg.py          Vega-Lite specifications as inline SVG
html.py         the renderer of reports, whose static blocks the dashboard shows too (`fedguard.app.blocks`)
terminal.py     the renderer of `fedguard show`
markdown.py     the renderer of job summaries
page.py         what a page is, and which pages there are
overview.py     the page of a run: verdict, chart, what was trained, checks; overview_chart.py draws its chart
matrix.py       every attack against every defense; panels.py holds its values and colors
privacy.py      the page on privacy; privacy_chart.py draws its charts, protections.py collects what they show
cell.py         one attack against one defense; cell_verdict.py judges it, cell_scores.py pairs it with its controls,
                cell_chart.py and cell_events.py draw, cell_facts.py has what stands behind it
breakdown.py    a metric over a swept key; breakdown_chart.py draws its curves, weight.py has breakdown in weight
compare.py      two runs, seed by seed; compare_chart.py draws the differences
gate.py         the gate's verdicts on a run, and the summary of a job; gate_chart.py draws its charts
secagg.py       what each mode of secure aggregation in a run hides, costs and leaves
protocol.py     a round of secure aggregation message by message, who sees what, and what it costs; no page of a run;
                protocol_chart.py draws it
replay.py       the rounds of a trial in a plane; replay_chart.py draws them
figure.py       a chart or a table as a file for a paper; heatmap_chart.py draws a heat map for it
trained.py      what was trained, in one line and in six facts
checks.py       red flags and incomplete trials as checks
"""
