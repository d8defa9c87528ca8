import netsor as ns

p = ns.Program("p")
n = p.width("n")
p.axis("t", 5)
x = p.vector("x", n, axes="t")
y = p.let("y", x + x.window("t", size=3, padding="valid").sum("k"))
