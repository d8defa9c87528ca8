"""Names that a text gives twice: to an operand that ends with a statement, and to what the statement makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from netsor.compilers.lowering.plan.operands import Making, Name
from netsor.compilers.lowering.plan.order import Free, Statement, unguarded
from netsor.compilers.lowering.plan.uses import into, reads


def rebound(statements: Sequence[Statement]) -> dict[Name, Name]:
    """Operand → result: what is written into, and a temporary of the result's stem that nothing else reads."""
    flat = [(s, reads(s)) for s in unguarded(statements) if not isinstance(s, Free)]
    readers = Counter(x for _, read in flat for x in set(read))
    own = {x for s, _ in flat for x in s.made() if x.kind == "temporary"}
    found: dict[Name, Name] = {}
    for s, read in flat:
        for body in s.bodies():
            found |= rebound(body)
        if isinstance(s, Making):
            ending = (x for x in read if x in own and readers[x] == 1 and x.stem == s.out.stem)
            target = into(s) or next(ending, None)
            found |= {} if target is None else {target: s.out}
    return found
