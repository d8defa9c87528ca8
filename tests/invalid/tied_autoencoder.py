import netsor as ns

p = ns.Program("p")
n = p.width("n")
x = p.data("x")
h = p.let("h", p.matrix("U", n, x) @ x)
W = p.matrix("W", n, n)
a = p.let("a", ns.relu(W @ h))
y = p.let("y", W.T @ a)
p.output(p.readout("v", n), y)
