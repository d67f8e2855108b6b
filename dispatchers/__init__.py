"""Dispatchers: functions from input shapes to the intervals, or the profiles, that become buckets.

`uniform_dispatcher`, `log_dispatcher` and `exact_dispatcher` are used bare, or with options in one
form: `log_dispatcher.with_options(base=4)`. `per_symbol`, `profiles`, `from_file` and
`from_traffic` make a dispatcher from what they are given. Any function of the same signature,
`{"data": (1, 3, H, W)} -> {"data": {2: [(1, 64), (64, None)]}}`, is their equal.
"""

from dispatchers.auto import auto
from dispatchers.axis import AxisDispatcher, Dispatcher
from dispatchers.exact import exact_dispatcher
from dispatchers.file import from_file
from dispatchers.logarithmic import log_dispatcher
from dispatchers.profile import profiles
from dispatchers.symbol import per_symbol
from dispatchers.traffic import from_traffic
from dispatchers.uniform import uniform_dispatcher

__all__ = [
    "AxisDispatcher",
    "Dispatcher",
    "auto",
    "exact_dispatcher",
    "from_file",
    "from_traffic",
    "log_dispatcher",
    "per_symbol",
    "profiles",
    "uniform_dispatcher",
]
