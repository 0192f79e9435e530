"""Low-rank adapters beside frozen weights: what clients train and send of them, and what the server makes of it.

form.py      what every form has in common: which layers, which rank, where a form may run
pairs.py     the factors A and B of each adapter, found by the names of parameters
layers.py    adapters put beside the linear layers of a network without any
products.py  the rows of a round as products of factors, which are never computed
refusals.py  where products cannot be aggregated, and why
model.py     a model of a suite with adapters

and one file for each form: factors.py, product.py, frozen_a.py, stacked.py.
"""

FORMS = {
    "factors": "fedguard.adapters.factors:Factors",
    "product": "fedguard.adapters.product:Product",
    "frozen_a": "fedguard.adapters.frozen_a:FrozenA",
    "stacked": "fedguard.adapters.stacked:Stacked",
}
