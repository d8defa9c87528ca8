"""A plan: a recursion as straight-line statements of one operation each, between the derivation and any text.

    plan       ::=  what every input has alone (each), then the kernels of pairs (pairs)
    statement  ::=  name = operation(operands)  |  loop or wave of statements  |  guard of statements
                 |  free names  |  result  |  note
    operand    ::=  name | quantity of one input | array of data | number

Every decision stands in a statement: which sums are box sums or contractions, the order of operations, whose memory a
result takes (`Into`), when a name is free. A name's layout is its sample dimensions, then a dimension for each of its
axes, of one element where the axis is None; arithmetic aligns dimensions from the right and broadcasts. A name without
a layout is an integer (or a move of a box). Symbols are those of the recursion. No text of a target language stands in
a plan.
"""
