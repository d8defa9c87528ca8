"""Infinite-width kernels of rnn, derived line by line from its program."""

import math

import torch

from netsor.compilers import runtime as rt

PROGRAM = """\
program rnn
width n
axis time
data x[time]
U : A(n, x) var 1
u[time] := U @ x[time]
W : A(n, n) var 1
b : G(n) var 1 trainable
_2[time] : H(n) := s[time - 1]
g[time] := W @ _2[time]
s[time] := tanh(g[time] + b + u[time])
_4 := s[-1]
v : G(n) var 1 readout
output v . _4
"""

INPUTS = {'x': ('data', (('time', None),))}

def tanh_values(z):  # tanh(z)
    return torch.tanh(z)
def tanh_slope(z):
    return 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z)
tanh = rt.function(tanh_values, derivative=tanh_slope, kinks=(), name='tanh')
tanh_prime = tanh.derivative  # tanh'(z)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    K_x = rt.gram("nad,nad->na", data['x'], data['x'])
    @rt.table(data, (data.size['time'],), (0,), 1, 1)
    def K_s_at(time):  # s[time] := tanh(g[time] + b + u[time])
        return rt.E11(tanh, tanh, K_g_b_u_at(time))
    @rt.table(data, (data.size['time'],), (0,), 1, 1)
    def K_g_b_u_at(time):
        return K_x[:, time] + K_s_at(time - 1) + 1
    K_s, K_g_b_u = rt.tabulate(K_s_at, K_g_b_u_at, reverse=False)
    return rt.Each(data, K_g_b_u=K_g_b_u)


def pairs(a, b, get):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    K_x = rt.gram("nmad,nmbd->nmab", a.data['x'], b.data['x'])
    K_g_b_u = rt.Lattice(a, b, (a.data.size['time'], b.data.size['time']), (0, 1))
    K_s = rt.Lattice(a, b, (a.data.size['time'], b.data.size['time']), (0, 1))
    for time, time2 in rt.wavefront(a.data, a.data.size['time'], b.data.size['time']):
        K_g_b_u_w = rt.add(rt.at(K_x, 2, (0, time), (1, time2)), K_s.at(time - 1, time2 - 1)).add_(1)
        K_g_b_u.put(time, time2, K_g_b_u_w)
        K_s_w = rt.E2(tanh, tanh, rt.at(a.K_g_b_u, 2, (0, time)), rt.at(b.K_g_b_u, 2, (0, time2)), K_g_b_u_w, same=True)  # s[time] := tanh(g[time] + b + u[time])
        K_s.put(time, time2, K_s_w)
    K_g_b_u = K_g_b_u.all()
    K_s = K_s.all()
    if 'ntk' in get:
        T_g = rt.Lattice(a, b, (a.data.size['time'], b.data.size['time']), (0, 1))
        T_s = rt.Lattice(a, b, (a.data.size['time'], b.data.size['time']), (0, 1))
        for time, time2 in rt.wavefront(a.data, a.data.size['time'], b.data.size['time']):
            T_g_w = rt.add(rt.at(K_s, 2, (0, time - 1), (1, time2 - 1)), T_s.at(time - 1, time2 - 1))  # g[time] := W @ _2[time]
            T_g.put(time, time2, T_g_w)
            T_s_w = rt.times(rt.E2(tanh_prime, tanh_prime, rt.at(a.K_g_b_u, 2, (0, time)), rt.at(b.K_g_b_u, 2, (0, time2)), rt.at(K_g_b_u, 2, (0, time), (1, time2)), same=True), rt.add(rt.at(K_x, 2, (0, time), (1, time2)), T_g_w).add_(1))  # s[time] := tanh(g[time] + b + u[time])
            T_s.put(time, time2, T_s_w)
        T_g = T_g.all()
        T_s = T_s.all()
    del K_g_b_u, K_x
    if 'nngp' in get:
        out['nngp'] = rt.shaped(K_s[:, :, -1, -1], a, b)
    if 'ntk' in get:
        out['ntk'] = rt.shaped(rt.add(K_s[:, :, -1, -1], T_s[:, :, -1, -1]), a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
