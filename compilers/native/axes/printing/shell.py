"""The C text that all kernels of inputs with axes share: types, and the walk over the tiles of a block."""

HEAD = """\
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(enable)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif
typedef T V __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef struct {
  long count, first, step;
  const int *need;
} Series;
typedef struct {
  const T *const *one, *const *two, *const *plain;
  const Series *series;
  T *const *out;
  unsigned char *near;
  long cols, pad, diagonal, upper;
  double bound;
} Block;
static const T zero[L];
"""

MAIN = """\
/* rows i0 ... i1 - 1 of a block; the number of pairs that are near, or -1 without memory */
long block(const Block *b, long i0, long i1)
{
  long found = 0;
  T *w, *out[RESULTS ? RESULTS : 1], me[L], near[L];
  void *memory = malloc((WORK + L) * sizeof(T) + 64);
  if (!memory) return -1;
  w = (T *)(((size_t)memory + 63) / 64 * 64);
  memset(w, 0, (WORK + L) * sizeof(T));
  for (long j = 0; j < b->pad + b->cols; j += L) {
    long first = j < b->pad ? b->pad - j : 0, last = b->pad + b->cols - j < L ? b->pad + b->cols - j : L;
    for (long i = i0; i < i1; ++i) {
      unsigned char *mark = b->near + i * b->cols + j - b->pad;
      long twice = b->diagonal < 0 ? -1 : i + b->diagonal + b->pad - j;
      memset(mark + first, 0, last - first);
      if (b->upper && j + last - b->pad <= i) continue;
      for (long l = 0; l < L; ++l) near[l] = 0, me[l] = l == twice ? 0 : -1;
      if (twice >= 0 && twice < L)
        own(b, i, j, w, near, me, out);
      else
        two(b, i, j, w, near, me, out);
      for (long k = 0; k < RESULTS; ++k)
        for (long l = first; l < last; ++l)
          for (long e = 0; e < SIZES[k]; ++e)
            b->out[k][(i * b->cols + j - b->pad + l) * SIZES[k] + e] = out[k][e * L + l];
      for (long l = first; l < last; ++l) found += mark[l] = near[l] > (T)b->bound;
    }
  }
  free(memory);
  return found;
}
"""

TORUS = """\
/* rows i0 ... i1 - 1 of a block, pair by pair, offset by offset; the number of pairs that are near */
long block(const Block *b, long i0, long i1)
{
  long found = 0;
  T *w, *out[RESULTS ? RESULTS : 1], me[L], near[L], acc[SUMS][L], sum[SUMS];
  void *memory = malloc((WORK + L) * sizeof(T) + 64);
  if (!memory) return -1;
  w = (T *)(((size_t)memory + 63) / 64 * 64);
  memset(w, 0, (WORK + L) * sizeof(T));
  for (long i = i0; i < i1; ++i)
    for (long j = 0; j < b->cols; ++j) {
      unsigned char *mark = b->near + i * b->cols + j;
      long twice = b->diagonal >= 0 && i + b->diagonal == j;
      double total[SUMS] = {0};
      *mark = 0;
      if (b->upper && j < i) continue;
      OFFSETS {
        long lanes = LAST - first < L ? LAST - first : L;
        memset(acc, 0, sizeof acc);
        for (long l = 0; l < L; ++l) near[l] = 0, me[l] = twice && AT_HOME && l == 0 ? 0 : -1;
        if (twice && AT_HOME)
          own(b, i, j, HERE, w, near, me, acc);
        else
          two(b, i, j, HERE, w, near, me, acc);
        for (long l = 0; l < lanes; ++l) *mark |= near[l] > (T)b->bound;
        for (long k = 0; k < SUMS; ++k)
          for (long l = 0; l < lanes; ++l) total[k] += acc[k][l];
      }
      for (long k = 0; k < SUMS; ++k) sum[k] = total[k];
      for (long l = 0; l < L; ++l) near[l] = 0, me[l] = twice ? 0 : -1;
      if (twice)
        own_last(b, i, j, sum, w, near, me, out);
      else
        two_last(b, i, j, sum, w, near, me, out);
      for (long k = 0; k < RESULTS; ++k)
        for (long e = 0; e < SIZES[k]; ++e)
          b->out[k][(i * b->cols + j) * SIZES[k] + e] = out[k][e * L];
      *mark |= near[0] > (T)b->bound;
      found += *mark;
    }
  free(memory);
  return found;
}
"""
