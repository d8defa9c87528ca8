import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
h = p.let("h", p.matrix("U", n, x) @ x)
W = p.matrix("W", n, n)
m = p.scalar("m", limit=0.5)
y = p.let("y", ns.step(h - m))
