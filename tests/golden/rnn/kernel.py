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

def tanh_values(z):
    return torch.tanh(z)
def tanh_slope(z):
    return 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z)
tanh = rt.function(tanh_values, derivative=tanh_slope, kinks=(), name='tanh')
tanh_prime = tanh.derivative  # tanh'(z)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    time_size = data.size['time']
    K_x = rt.gram("nad,nad->na", data['x'], data['x'])
    @rt.table(data, (time_size,), (0,), 1, 1)
    def K_s_at(time):
        # s[time] := tanh(g[time] + b + u[time])
        K_g_b_u_2 = K_g_b_u_at(time)
        V_g_b_u = rt.Variance(K_g_b_u_2)
        del K_g_b_u_2
        K_s_2 = rt.E11(tanh, tanh, V_g_b_u)
        return K_s_2
    @rt.table(data, (time_size,), (0,), 1, 1)
    def K_g_b_u_at(time):
        K_x_2 = K_x[:, time]
        time_2 = time - 1
        K_s_2 = K_s_at(time_2)
        K_g_b_u_2 = K_x_2 + K_s_2
        del K_x_2, K_s_2
        K_g_b_u_2 = K_g_b_u_2 + 1
        return K_g_b_u_2
    K_s, K_g_b_u = rt.tabulate(K_s_at, K_g_b_u_at, reverse=False)
    return rt.Each(data, K_g_b_u=K_g_b_u)


def pairs(a, b, get, work):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    time_size_a = a.data.size['time']
    time_size_b = b.data.size['time']
    K_x = rt.gram("nmad,nmbd->nmab", a.data['x'], b.data['x'], work)
    K_g_b_u = rt.Lattice(a, b, (time_size_a, time_size_b), (0, 1))
    K_s = rt.Lattice(a, b, (time_size_a, time_size_b), (0, 1))
    for time, time2 in rt.wavefront(a.data, time_size_a, time_size_b):
        K_x_2 = rt.at(K_x, 2, (0, time), (1, time2))
        time_2 = time - 1
        time_3 = time2 - 1
        K_s_2 = K_s.at(time_2, time_3)
        del time_2, time_3
        K_g_b_u_w = rt.add(work, K_x_2, K_s_2)
        del K_x_2, K_s_2
        K_g_b_u_w = K_g_b_u_w.add_(1)
        K_g_b_u.put(time, time2, K_g_b_u_w)
        # s[time] := tanh(g[time] + b + u[time])
        K_g_b_u_a = rt.at(a.side.K_g_b_u, 2, (0, time))
        K_g_b_u_b = rt.at(b.side.K_g_b_u, 2, (0, time2))
        L_s = rt.law(work, K_g_b_u_a, K_g_b_u_b, K_g_b_u_w, same=True)
        del K_g_b_u_w, K_g_b_u_a, K_g_b_u_b
        K_s_w = rt.E2(tanh, tanh, L_s)
        del L_s
        K_s.put(time, time2, K_s_w)
    K_g_b_u = K_g_b_u.all()
    K_s = K_s.all()
    if 'ntk' in get:
        T_g = rt.Lattice(a, b, (time_size_a, time_size_b), (0, 1))
        T_s = rt.Lattice(a, b, (time_size_a, time_size_b), (0, 1))
        for time_4, time2_2 in rt.wavefront(a.data, time_size_a, time_size_b):
            # g[time] := W @ _2[time]
            time_5 = time_4 - 1
            time_6 = time2_2 - 1
            K_s_3 = rt.at(K_s, 2, (0, time_5), (1, time_6))
            T_s_2 = T_s.at(time_5, time_6)
            del time_5, time_6
            T_g_w = rt.add(work, K_s_3, T_s_2)
            del K_s_3, T_s_2
            T_g.put(time_4, time2_2, T_g_w)
            # s[time] := tanh(g[time] + b + u[time])
            K_g_b_u_a_2 = rt.at(a.side.K_g_b_u, 2, (0, time_4))
            K_g_b_u_b_2 = rt.at(b.side.K_g_b_u, 2, (0, time2_2))
            K_g_b_u_2 = rt.at(K_g_b_u, 2, (0, time_4), (1, time2_2))
            L_s_2 = rt.law(work, K_g_b_u_a_2, K_g_b_u_b_2, K_g_b_u_2, same=True)
            del K_g_b_u_a_2, K_g_b_u_b_2, K_g_b_u_2
            T_s_w = rt.E2(tanh_prime, tanh_prime, L_s_2)
            del L_s_2
            K_x_3 = rt.at(K_x, 2, (0, time_4), (1, time2_2))
            T_s_3 = rt.add(work, K_x_3, T_g_w)
            del T_g_w, K_x_3
            T_s_3 = T_s_3.add_(1)
            T_s_w = rt.times(T_s_w, T_s_3)
            del T_s_3
            T_s.put(time_4, time2_2, T_s_w)
        T_g = T_g.all()
        T_s = T_s.all()
        del T_g
    del K_x, K_g_b_u
    if 'nngp' in get:
        K_s_4 = K_s[:, :, -1, -1]
        out['nngp'] = rt.shaped(K_s_4, a, b)
        del K_s_4
    if 'ntk' in get:
        K_s_5 = K_s[:, :, -1, -1]
        T_s_4 = T_s[:, :, -1, -1]
        ntk_ = rt.add(work, K_s_5, T_s_4)
        del T_s, K_s_5, T_s_4
        out['ntk'] = rt.shaped(ntk_, a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
