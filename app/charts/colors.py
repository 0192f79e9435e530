"""Colors that people who cannot tell red from green can tell apart, on light and dark (after Okabe and Ito 2008)."""

COLORS = ("#2F8FD0", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#7A5CB8", "#8C8C8C")

#: For references such as chance, as opposed to results
GRAY = "#8C8C8C"
