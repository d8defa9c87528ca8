"""Infinite-width kernels of transformer, derived line by line from its program."""

import math

import torch

from netsor.compilers import runtime as rt

PROGRAM = """\
program transformer
width n
axis token, token_key
data x[token]
U1 : A(n, x) var 1
k1[token] := U1 @ x[token]
_2[token_key] := k1[token_key]
_3[token, token_key] := moment(k1[token] * _2[token_key])
_4[token, token_key] := softmax[token_key](_3[token, token_key])
_5[token_key, token] := _2[token_key] * _4[token, token_key]
_6[token] := sum[token_key](_5[token_key, token])
y1[token] := _6[token] + k1[token]
_7[token] := moment(y1[token])
_8[token] := moment((y1[token] - _7[token])^2)
z1[token] := (y1[token] - _7[token]) / sqrt(_8[token])
W1a : A(n, n) var 1
g1[token] := W1a @ z1[token]
W1b : A(n, n) var 1
_10[token] := relu(g1[token])
h1[token] := W1b @ _10[token]
_12[token] := h1[token] + z1[token]
_13[token] := moment(_12[token])
_14[token] := moment((_12[token] - _13[token])^2)
x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
v : G(n) var 1 readout
_15 := mean[token](x1[token])
output v . _15
"""

INPUTS = {'x': ('data', (('token', None),))}

def f_1(c0):
    return 1 / torch.sqrt(c0)
relu = rt.relu_power(1)  # relu(z)
step = rt.relu_power(0)  # step(z)
def f_2(c0):
    return 1/c0
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    token_size = data.size['token']
    K_x_2 = rt.gram("nad,nbd->nab", data['x'], data['x'])
    # _4[token, token_key] := softmax[token_key](_3[token, token_key])
    K_x_2_2 = K_x_2.permute(0, 2, 1)
    S__4 = rt.softmax(K_x_2_2, -1, token_size)
    # _6[token] := sum[token_key](_5[token_key, token])
    K__5_sum = rt.contract("nab,ncb->nca", (K_x_2_2, S__4), a=token_size, b=token_size, c=token_size)
    K__5_sum = rt.contract("nab,nab->na", (S__4, K__5_sum), a=token_size, b=token_size)
    K_k1___5_sum = rt.contract("nab,nab->na", (K_x_2_2, S__4), a=token_size, b=token_size)
    del K_x_2, K_x_2_2
    K_x = rt.gram("nad,nad->na", data['x'], data['x'])
    # y1[token] := _6[token] + k1[token]
    K_y1 = 2 * K_k1___5_sum
    del K_k1___5_sum
    K_y1 = K_x + K_y1
    del K_x
    K_y1 = K_y1 + K__5_sum
    del K__5_sum
    # z1[token] := (y1[token] - _7[token]) / sqrt(_8[token])
    K_z1_2 = f_1(K_y1)
    K_z1 = K_y1 * K_z1_2
    K_z1 = K_z1 * K_z1_2
    del K_z1_2
    # _10[token] := relu(g1[token])
    V_z1 = rt.Variance(K_z1)
    K_relu_g1 = rt.E11(relu, relu, V_z1)
    # _12[token] := h1[token] + z1[token]
    K_h1_z1 = K_z1 + K_relu_g1
    return rt.Each(data, S__4=S__4, K_y1=K_y1, K_z1=V_z1, K_h1_z1=K_h1_z1)


def pairs(a, b, get, work):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    token_size_a = a.data.size['token']
    token_size_b = b.data.size['token']
    K_x = rt.gram("nmad,nmbd->nmab", a.data['x'], b.data['x'], work)
    # k1[token] := U1 @ x[token]
    K_x_3 = K_x[:, :, :, None]
    S__4_a = a.S__4.permute(0, 1, 3, 2)
    S__4_a = S__4_a[:, :, :, :, None]
    K__5__k1 = rt.product(work, K_x_3, S__4_a)
    del K_x_3, S__4_a
    # _6[token] := sum[token_key](_5[token_key, token])
    K_k1___5_sum = rt.contract("nmab,nmcb->nmac", (K_x, b.S__4), a=token_size_a, b=token_size_b, c=token_size_b)
    # _5[token_key, token] := _2[token_key] * _4[token, token_key]
    K__5__k1_2 = K__5__k1.permute(0, 1, 3, 4, 2)
    K__5__k1_3 = K__5__k1_2[:, :, :, :, None]
    K__5_sum___5 = rt.total(K__5__k1_3, token_size_a)
    del K__5__k1_3
    S__4_b = b.S__4.permute(0, 1, 3, 2)
    S__4_b = S__4_b[:, :, None]
    K__5_sum___5 = rt.times(K__5_sum___5, S__4_b)
    del S__4_b
    # k1[token] := U1 @ x[token]
    K__5_sum__k1 = rt.total(K__5__k1_2, token_size_a)
    del K__5__k1, K__5__k1_2
    # _6[token] := sum[token_key](_5[token_key, token])
    K__5_sum___5_2 = K__5_sum___5.permute(0, 1, 2, 4, 3)
    K__5_sum = rt.total(K__5_sum___5_2, token_size_b)
    del K__5_sum___5, K__5_sum___5_2
    # y1[token] := _6[token] + k1[token]
    K_y1 = rt.add(work, K_x, K__5_sum__k1)
    del K_x, K__5_sum__k1
    K_y1 = rt.axpby(1, K_y1, 1, K_k1___5_sum)
    del K_k1___5_sum
    K_y1 = rt.axpby(1, K_y1, 1, K__5_sum)
    del K__5_sum
    # z1[token] := (y1[token] - _7[token]) / sqrt(_8[token])
    K_y1_a = a.K_y1[:, :, :, None]
    K_z1 = f_1(K_y1_a)
    del K_y1_a
    K_z1 = rt.product(work, K_y1, K_z1)
    del K_y1
    K_y1_b = b.K_y1[:, :, None]
    K_z1_2 = f_1(K_y1_b)
    del K_y1_b
    K_z1 = rt.times(K_z1, K_z1_2)
    del K_z1_2
    # _10[token] := relu(g1[token])
    K_z1_a = a.side.K_z1[:, :, :, None]
    K_z1_b = b.side.K_z1[:, :, None]
    L_relu_g1 = rt.law(work, K_z1_a, K_z1_b, K_z1, same=True)
    del K_z1_a, K_z1_b
    K_relu_g1 = rt.E2(relu, relu, L_relu_g1)
    if 'ntk' in get:
        # _10[token] := relu(g1[token])
        T_relu_g1 = rt.E2(step, step, L_relu_g1)
        T_relu_g1 = rt.times(T_relu_g1, 2)
        T_relu_g1 = rt.times(T_relu_g1, K_z1)
    del L_relu_g1
    # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
    K_x1 = rt.add(work, K_z1, K_relu_g1)
    K_h1_z1_a = a.K_h1_z1[:, :, :, None]
    K_x1_2 = f_1(K_h1_z1_a)
    del K_h1_z1_a
    K_x1 = K_x1 * K_x1_2
    K_h1_z1_b = b.K_h1_z1[:, :, None]
    K_x1_3 = f_1(K_h1_z1_b)
    del K_h1_z1_b
    K_x1 = K_x1 * K_x1_3
    if 'ntk' in get:
        # h1[token] := W1b @ _10[token]
        T_h1 = rt.add(work, K_relu_g1, T_relu_g1)
        del T_relu_g1
    del K_relu_g1
    # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
    K_x1_4 = K_x1.permute(0, 1, 3, 2)
    K_x1_mean__x1 = rt.total(K_x1_4, token_size_a)
    del K_x1, K_x1_4
    K_x1_mean__x1_2 = f_2(token_size_a)
    K_x1_mean__x1 = rt.times(K_x1_mean__x1, K_x1_mean__x1_2)
    if 'ntk' in get:
        # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
        T_x1 = rt.add(work, K_z1, T_h1)
        del T_h1
        T_x1 = T_x1 * K_x1_2
        T_x1 = T_x1 * K_x1_3
    del K_z1, K_x1_2, K_x1_3
    # _15 := mean[token](x1[token])
    K_x1_mean = rt.total(K_x1_mean__x1, token_size_b)
    del K_x1_mean__x1
    K_x1_mean_2 = f_2(token_size_b)
    K_x1_mean = rt.times(K_x1_mean, K_x1_mean_2)
    if 'ntk' in get:
        # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
        T_x1_2 = T_x1.permute(0, 1, 3, 2)
        T_x1_mean__x1 = rt.total(T_x1_2, token_size_a)
        del T_x1, T_x1_2
        T_x1_mean__x1 = rt.times(T_x1_mean__x1, K_x1_mean__x1_2)
        # _15 := mean[token](x1[token])
        T_x1_mean = rt.total(T_x1_mean__x1, token_size_b)
        del T_x1_mean__x1
        T_x1_mean = rt.times(T_x1_mean, K_x1_mean_2)
    if 'nngp' in get:
        out['nngp'] = rt.shaped(K_x1_mean, a, b)
    if 'ntk' in get:
        ntk_ = rt.add(work, K_x1_mean, T_x1_mean)
        del T_x1_mean
        out['ntk'] = rt.shaped(ntk_, a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
