import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
h = p.let("h", p.matrix("U", n, x) @ x)
W = p.matrix("W", n, n)
b = p.bias("b", n)
v = p.readout("v", n, cov={b: 0.5})
y = p.let("y", ns.tanh(W @ ns.tanh(h) + b))
p.output(v, y)
