import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
h = p.let("h", p.matrix("U", n, x) @ x)
W = p.matrix("W", n, n)
v = p.readout("v", n)
y = p.let("y", ns.tanh(W @ ns.tanh(h) + v))
p.output(v, y)
