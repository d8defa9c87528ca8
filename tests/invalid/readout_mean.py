import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
h = p.let("h", p.matrix("U", n, x) @ x)
W = p.matrix("W", n, n)
y = p.let("y", ns.relu(W @ ns.relu(h)))
p.output(p.readout("v", n, mean=1.0), y)
