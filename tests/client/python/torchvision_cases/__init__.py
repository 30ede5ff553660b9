"""What each transform becomes, or why it is refused: a module for each family of transforms.

`TRANSLATED` has lists of transforms and the graphs that they become, `REFUSED` lists of transforms
and a part of the message.
"""

from __future__ import annotations

from torchvision_fakes import Table

from . import chance, colours, dtypes, geometry, strangers


def _merged(*tables: Table) -> Table:
    merged: Table = {}
    for table in tables:
        assert not merged.keys() & table.keys(), "a name is taken in another module"
        merged |= table
    return merged


TRANSLATED = _merged(geometry.TRANSLATED, colours.TRANSLATED, chance.TRANSLATED, dtypes.TRANSLATED)
REFUSED = _merged(
    geometry.REFUSED, colours.REFUSED, chance.REFUSED, dtypes.REFUSED, strangers.REFUSED
)
