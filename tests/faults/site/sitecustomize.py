"""Found by each process of the rig's cluster when Python starts: changes the product as its environment says.

The product itself has no switch for any of this.
"""

from __future__ import annotations

from tests.faults import mutants

mutants.apply()
