# SPDX-License-Identifier: Apache-2.0
"""DataFrames as data, for clients that show tables themselves: the MIME type `e2b/data` of E2B's code interpreter, an
object of columns. In sessions of E2B's clients only (kernelgate_kernel.set_folder())."""

from IPython.core.formatters import JSONFormatter
from traitlets import ObjectName, Unicode

CELLS_MAX = 100_000  # a larger table is shown as text and HTML only


class TableFormatter(JSONFormatter):
    """Finds DataFrames by the name of their class, so that nothing is imported for it."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")


def _plain(value):
    """What JSON can say of a value: times as ISO 8601, what is missing as null, all else as text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if hasattr(value, "isoformat"):
        return value.isoformat() if value == value else None
    if hasattr(value, "item"):
        return _plain(value.item())
    return str(value)


def _columns(frame):
    if frame.size > CELLS_MAX:
        return None
    columns = frame.to_dict("list").items()
    return {str(name): [_plain(value) for value in values] for name, values in columns}


def show_tables(shell):
    formatters = shell.display_formatter.formatters
    formatter = TableFormatter(parent=shell.display_formatter)
    for module in "pandas", "pandas.core.frame":  # of pandas 3, and of earlier ones
        formatter.for_type_by_name(module, "DataFrame", _columns)
    formatters["e2b/data"] = formatter
