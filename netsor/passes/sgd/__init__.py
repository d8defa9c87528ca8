"""The parts of `ns.train`: a program on given samples, the lines of one step, what steps leave behind, arguments."""
