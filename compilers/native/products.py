"""The C text of inner products of data: a product of matrices by panels, so that every number read serves several.

A panel is three vectors of columns, stored feature by feature; DEEP rows of the first batch meet it at once, in as many
accumulators as the processor's vectors have registers for.
"""

from __future__ import annotations

WIDE, NARROW = 8, 4  # rows at once with 32 vector registers, and with 16

SIZES = """\
#if defined(__AVX512F__)
#define SIMD 64
#define DEEP 8
#elif defined(__AVX__)
#define SIMD 32
#define DEEP 4
#elif defined(__aarch64__)
#define SIMD 16
#define DEEP 8
#else
#define SIMD 16
#define DEEP 4
#endif
#define PANEL (3 * SIMD / (long)sizeof(T))
#define UNIT (2048 / (long)sizeof(T))
#define DEPTH 128
typedef T W __attribute__((vector_size(SIMD), aligned(sizeof(T)), may_alias));
"""

PACK = """\
/* columns of the second batch as panels, DEPTH features of them; zeros behind the last column */
static void packed(const T *x, long ld, long cols, long depth, T *p)
{
  for (long c = 0; c < COLS; c += PANEL, p += DEPTH * PANEL)
    for (long v = 0; v < PANEL && c < cols; ++v) {
      const T *from = x + (c + v) * ld;
      if (c + v < cols)
        for (long k = 0; k < depth; ++k) p[k * PANEL + v] = from[k];
      else
        for (long k = 0; k < depth; ++k) p[k * PANEL + v] = 0;
    }
}

/* inner products of rows i0 ... i0 + rows - 1 and of some columns, by the number of features */
static void products(const Block *b, long which, long i0, long rows, long j0, long cols, T (*gram)[COLS], T *p)
{
  long d = b->features[which];
  for (long k = 0; k < d; k += DEPTH) {
    long depth = d - k < DEPTH ? d - k : DEPTH;
    packed(b->right[which] + j0 * b->ldr[which] + k, b->ldr[which], cols, depth, p);
    for (long c = 0; c < cols; c += PANEL)
      for (long r = 0; r < rows; r += DEEP) {
        const T *a[DEEP];
        for (long l = 0; l < DEEP; ++l)
          a[l] = b->left[which] + (i0 + (r + l < rows ? r + l : rows - 1)) * b->ldl[which] + k;
        meet(a, depth, p + c * DEPTH, &gram[r][c], k > 0);
      }
  }
}
"""


def text() -> str:
    """`products`, which fills `gram[rows][COLS]` but for the division by the number of features."""
    kernels = [f"#if DEEP == {WIDE}", _meet(WIDE), "#else", _meet(NARROW), "#endif"]
    return "\n".join([*kernels, PACK])


def _meet(rows: int) -> str:
    """`meet`: rows × one panel, added to what is there where `more`."""
    both = [(r, v) for r in range(rows) for v in range(3)]
    lines = ["static void meet(const T *const *a, long depth, const T *p, T *gram, int more)", "{"]
    lines += [f"  const T *a{r} = a[{r}];" for r in range(rows)]
    lines += [f"  W s{r}{v} = {{0}};" for r, v in both]
    lines += ["  for (long k = 0; k < depth; ++k, p += PANEL) {"]
    lines += [f"    W p{v} = ((const W *)p)[{v}];" for v in range(3)]
    lines += [f"    s{r}{v} += a{r}[k] * p{v};" for r, v in both]
    lines += ["  }", "  if (more) {"]
    lines += [f"    s{r}{v} += ((W *)(gram + {r} * COLS))[{v}];" for r, v in both]
    lines += ["  }"]
    lines += [f"  ((W *)(gram + {r} * COLS))[{v}] = s{r}{v};" for r, v in both]
    return "\n".join([*lines, "}"])
