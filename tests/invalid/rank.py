import netsor as ns

p = ns.Program("p")
n = p.width("n")
W = p.matrix("W", n, n)
c = p.scalar("c", limit=0.0)
u = p.vector("u", n)
a = p.let("a", W @ ns.tanh(u))
b = p.let("b", W @ ((1 + c) * ns.tanh(u) + c * u))
