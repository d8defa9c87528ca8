"""The syntax trees of a listing's statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from netsor.parser.tokens import Token

MAX_DEPTH = 60


class TooDeepError(Exception):
    """An expression nested beyond MAX_DEPTH."""

    def __init__(self, token: Token) -> None:
        super().__init__(token.text)
        self.token = token


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Literal:
    token: Token
    depth: int = 0


@dataclass(frozen=True)
class Placed:
    """`t = 0` in `place[t = 0](x)`."""

    token: Token
    index: int
    depth: int = 0


@dataclass(frozen=True)
class Strided:
    """`2 s + k` in `x[2 s + k]`."""

    token: Token
    stride: Token
    axis: Token
    tap: Token
    depth: int = 0


@dataclass(frozen=True)
class Reference:
    token: Token
    items: tuple[Item, ...] | None
    depth: int = 0


@dataclass(frozen=True)
class Transpose:
    token: Token
    of: Node
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _deepen(self, self.of)


@dataclass(frozen=True)
class MatMul:
    token: Token
    matrix: Node
    vector: Node
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _deepen(self, self.matrix, self.vector)


@dataclass(frozen=True)
class Power:
    token: Token
    base: Node
    exponent: Node
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _deepen(self, self.base, self.exponent)


@dataclass(frozen=True)
class Product:
    """Factors and whether each divides."""

    token: Token
    factors: tuple[tuple[bool, Node], ...]
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _deepen(self, *(f for _, f in self.factors))


@dataclass(frozen=True)
class Sum:
    """Terms and whether each is subtracted."""

    token: Token
    terms: tuple[tuple[bool, Node], ...]
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _deepen(self, *(t for _, t in self.terms))


@dataclass(frozen=True)
class Call:
    """`name[items]'1(args)`; primes are the 1-based arguments of the derivatives, None for a bare prime."""

    token: Token
    items: tuple[Item, ...] | None
    primes: tuple[int | None, ...]
    args: tuple[Node, ...]
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _deepen(self, *self.args, *(self.items or ()))
        if len(self.primes) > 8:
            raise TooDeepError(self.token)

    @property
    def name(self) -> str:
        return name_of(self.token)


Node = Literal | Reference | Transpose | MatMul | Power | Product | Sum | Call
Item = Node | Placed | Strided


def _deepen(node: Node, *parts: Item) -> None:
    depth = 1 + max((p.depth for p in parts), default=0)
    if depth > MAX_DEPTH:
        raise TooDeepError(node.token)
    object.__setattr__(node, "depth", depth)


def name_of(token: Token) -> str:
    """The name that a token writes, without its backquotes."""
    return token.text[1:-1] if token.text.startswith("`") else token.text


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class Size:
    """A size along an axis: a number, `|axis|`, or one of these less `minus` over `stride`."""

    token: Token
    of: Size | None = None
    minus: int = 0
    stride: int = 1


@dataclass(frozen=True)
class Left:
    """The variable on the left with its axes (None without brackets) and the sizes written beside them."""

    token: Token
    axes: tuple[tuple[Token, Size | None], ...] | None


@dataclass(frozen=True)
class Type:
    """`G(n)`; a dimension of two words is `data x`."""

    token: Token
    dimensions: tuple[tuple[Token, ...], ...]


@dataclass(frozen=True)
class Program:
    label: Token


@dataclass(frozen=True)
class Widths:
    """Name, ratio and the width it is a ratio to."""

    items: tuple[tuple[Token, Node | None, Token | None], ...]


@dataclass(frozen=True)
class Axes:
    items: tuple[tuple[Token, Token | None], ...]


@dataclass(frozen=True)
class Parameters:
    names: tuple[Token, ...]


@dataclass(frozen=True)
class Data:
    left: Left
    type: Type | None


Value = Node | tuple["Value", ...]


@dataclass(frozen=True)
class Attribute:
    token: Token
    axis: Token | None
    value: Value | None


@dataclass(frozen=True)
class Input:
    left: Left
    type: Type
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True)
class Where:
    """The offsets of a window's taps; `product` when they are given as ranges per axis."""

    tap: Token
    taps: tuple[tuple[int, ...], ...]
    product: bool
    outside: str


@dataclass(frozen=True)
class Line:
    left: Left
    type: Type | None
    value: Node
    where: tuple[Where, ...]
    over: tuple[Node, ...]


@dataclass(frozen=True)
class Cov:
    first: Node
    second: Node
    value: Node


@dataclass(frozen=True)
class Output:
    label: Token | None
    readout: Node
    vector: Node
    scale: Node | None


@dataclass(frozen=True)
class Gradient:
    of: Node
    is_: Node


@dataclass(frozen=True)
class Returns:
    label: Token
    value: Node


@dataclass(frozen=True)
class Function:
    name: Token
    arguments: tuple[Token, ...]
    body: Node | None  # None: abstract
    facts: tuple[tuple[Token, Value], ...]


@dataclass(frozen=True)
class Numeric:
    name: Token


@dataclass(frozen=True)
class Accept:
    code: Token
    because: Token


Statement = (
    Program | Widths | Axes | Parameters | Data | Input | Line | Cov | Output | Gradient | Returns | Function | Numeric
    | Accept
)  # fmt: skip
