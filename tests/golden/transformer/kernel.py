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

relu = rt.relu_power(1)  # relu(z)
step = rt.relu_power(0)  # step(z)
GET = ('nngp', 'ntk')


def each(data):
    """The quantities of every input alone: tensors [n, ...]."""
    K_x_2 = rt.gram("nad,nbd->nab", data['x'], data['x'])
    S__4 = rt.softmax(K_x_2.permute(0, 2, 1), -1, data.size['token'])  # _4[token, token_key] := softmax[token_key](_3[token, token_key])
    K__5_sum = rt.contract("nab,nab->na", (S__4, rt.contract("nab,ncb->nca", (K_x_2.permute(0, 2, 1), S__4), a=data.size['token'], b=data.size['token'], c=data.size['token'])), a=data.size['token'], b=data.size['token'])  # _6[token] := sum[token_key](_5[token_key, token])
    K_k1___5_sum = rt.contract("nab,nab->na", (K_x_2.permute(0, 2, 1), S__4), a=data.size['token'], b=data.size['token'])  # _6[token] := sum[token_key](_5[token_key, token])
    K_x = rt.gram("nad,nad->na", data['x'], data['x'])
    K_y1 = K_x + 2 * K_k1___5_sum + K__5_sum  # y1[token] := _6[token] + k1[token]
    K_z1 = K_y1 * (1 / torch.sqrt((K_y1))) * (1 / torch.sqrt((K_y1)))  # z1[token] := (y1[token] - _7[token]) / sqrt(_8[token])
    K_relu_g1 = rt.E11(relu, relu, K_z1)  # _10[token] := relu(g1[token])
    K_h1_z1 = K_z1 + K_relu_g1  # _12[token] := h1[token] + z1[token]
    return rt.Each(data, S__4=S__4, K_y1=K_y1, K_z1=K_z1, K_h1_z1=K_h1_z1)


def pairs(a, b, get):
    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""
    out = {}
    if get.isdisjoint(('nngp', 'ntk')):
        return out
    K_x = rt.gram("nmad,nmbd->nmab", a.data['x'], b.data['x'])
    K__5__k1 = rt.product(K_x[:, :, :, None], a.S__4.permute(0, 1, 3, 2)[:, :, :, :, None])  # k1[token] := U1 @ x[token]
    K_k1___5_sum = rt.contract("nmab,nmcb->nmac", (K_x, b.S__4), a=a.data.size['token'], b=b.data.size['token'], c=b.data.size['token'])  # _6[token] := sum[token_key](_5[token_key, token])
    K__5_sum___5 = rt.times(rt.total(K__5__k1.permute(0, 1, 3, 4, 2)[:, :, :, :, None], a.data.size['token']), b.S__4.permute(0, 1, 3, 2)[:, :, None])  # _5[token_key, token] := _2[token_key] * _4[token, token_key]
    K__5_sum__k1 = rt.total(K__5__k1.permute(0, 1, 3, 4, 2), a.data.size['token'])  # k1[token] := U1 @ x[token]
    del K__5__k1
    K__5_sum = rt.total(K__5_sum___5.permute(0, 1, 2, 4, 3), b.data.size['token'])  # _6[token] := sum[token_key](_5[token_key, token])
    del K__5_sum___5
    K_y1 = rt.axpby(1, rt.axpby(1, rt.add(K_x, K__5_sum__k1), 1, K_k1___5_sum), 1, K__5_sum)  # y1[token] := _6[token] + k1[token]
    del K__5_sum, K__5_sum__k1, K_k1___5_sum, K_x
    K_z1 = rt.product(K_y1, 1 / torch.sqrt((a.K_y1[:, :, :, None])), 1 / torch.sqrt((b.K_y1[:, :, None])))  # z1[token] := (y1[token] - _7[token]) / sqrt(_8[token])
    del K_y1
    K_relu_g1 = rt.E2(relu, relu, a.K_z1[:, :, :, None], b.K_z1[:, :, None], K_z1, same=True)  # _10[token] := relu(g1[token])
    if 'ntk' in get:
        T_relu_g1 = rt.times(rt.E2(step, step, a.K_z1[:, :, :, None], b.K_z1[:, :, None], K_z1, same=True), 2, K_z1)  # _10[token] := relu(g1[token])
    K_x1 = (rt.add(K_z1, K_relu_g1)) * (1 / torch.sqrt((a.K_h1_z1[:, :, :, None]))) * (1 / torch.sqrt((b.K_h1_z1[:, :, None])))  # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
    if 'ntk' in get:
        T_h1 = rt.add(K_relu_g1, T_relu_g1)  # h1[token] := W1b @ _10[token]
    del K_relu_g1
    if 'ntk' in get:
        del T_relu_g1
    K_x1_mean__x1 = rt.times(rt.total(K_x1.permute(0, 1, 3, 2), a.data.size['token']), 1/(a.data.size['token']))  # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
    del K_x1
    if 'ntk' in get:
        T_x1 = (rt.add(K_z1, T_h1)) * (1 / torch.sqrt((a.K_h1_z1[:, :, :, None]))) * (1 / torch.sqrt((b.K_h1_z1[:, :, None])))  # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
    del K_z1
    if 'ntk' in get:
        del T_h1
    K_x1_mean = rt.times(rt.total(K_x1_mean__x1, b.data.size['token']), 1/(b.data.size['token']))  # _15 := mean[token](x1[token])
    del K_x1_mean__x1
    if 'ntk' in get:
        T_x1_mean__x1 = rt.times(rt.total(T_x1.permute(0, 1, 3, 2), a.data.size['token']), 1/(a.data.size['token']))  # x1[token] := (_12[token] - _13[token]) / sqrt(_14[token])
        del T_x1
        T_x1_mean = rt.times(rt.total(T_x1_mean__x1, b.data.size['token']), 1/(b.data.size['token']))  # _15 := mean[token](x1[token])
        del T_x1_mean__x1
    if 'nngp' in get:
        out['nngp'] = rt.shaped(K_x1_mean, a, b)
    if 'ntk' in get:
        out['ntk'] = rt.shaped(rt.add(K_x1_mean, T_x1_mean), a, b)
    return out


def kernel(x1, x2=None, get=GET):
    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""
    return rt.evaluate(INPUTS, each, pairs, x1, x2, get)


def nngp(x1, x2=None):
    return kernel(x1, x2, ("nngp",)).nngp


def ntk(x1, x2=None):
    return kernel(x1, x2, ("ntk",)).ntk
