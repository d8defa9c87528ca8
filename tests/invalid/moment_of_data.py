import netsor as ns

p = ns.Program("p")
n = p.width("n")
c = ns.moment(p.data("x"))
