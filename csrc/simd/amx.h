/* Tiles of AMX: eight registers of up to 16 rows of 16 cells of 32 bits, beside the vectors of simd.h.
 *
 *   CV_AMX                       the unit may multiply bytes in tiles; CV_AMX_BF16: bfloat16, too
 *   CV_AMX_CELLS                 cells of a row, and the most rows; CV_AMX_SUMS: tiles of sums
 *
 *   cv_amx_allowed()             this process may: where not, the same code computes in vectors
 *   cv_amx_shape(rows, cells)    shapes this thread's tiles: 0 to 3 hold sums, rows x 16; 4 holds x, rows x
 *                                cells; 6 and 7 hold w, cells x 16
 *   cv_amx_release()             this thread has no tiles: nobody need keep them when it is interrupted
 *
 *   cv_amx_zero(t)
 *   cv_amx_load(t, p, stride)    rows of x or w lie `stride` cells apart, at any alignment
 *   cv_amx_store(t, p, stride)   the same of sums
 *   cv_amx_dot_bytes(sum)        sum[i][j] += of all cells c: the four products of the bytes of x[i][c],
 *                                unsigned, and w[c][j], signed; w is tile 6 of an even sum, 7 of an odd one
 *   cv_amx_dot_bf16(sum)         the same of two bfloat16: products of first and of second elements are
 *                                added apart, then together, then to the sum; denormals are taken for 0
 *
 * Numbers of tiles are constants.  Cells of x and w lie as vectors have them: a pair or a quad of k, so
 * that the rows of a packed panel are those of w.
 *
 * With CV_EMULATE_AMX all this is plain C (amx_emulated.h), for machines without AMX.  No machine with it
 * was at hand: the instructions are assembled, but were neither run nor timed.
 */
#ifndef CONVOY_SIMD_AMX_H_
#define CONVOY_SIMD_AMX_H_

#include "convoy/runtime.h"
#include "simd/simd.h"

#define CV_AMX_CELLS 16
#define CV_AMX_SUMS 4

#if CV_LANES == 16 && defined(CV_EMULATE_AMX)
#define CV_AMX 1
#define CV_AMX_BF16 1
#include "simd/amx_emulated.h"
#elif CV_LANES == 16 && defined(__AMX_TILE__) && defined(__AMX_INT8__)
#define CV_AMX 1

CV_INLINE int cv_amx_allowed(void) { return convoy_has_amx(); }

/* As ldtilecfg reads it. */
typedef struct cv_amx_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} cv_amx_config;

CV_INLINE void cv_amx_shape(int rows, int cells) {
  cv_amx_config c = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    c.rows[t] = (uint8_t)(t < 5 ? rows : cells);
    c.row_bytes[t] = (uint16_t)(t == 4 ? 4 * cells : 64);
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

CV_INLINE void cv_amx_release(void) { __asm__ volatile("tilerelease"); }

/* Not the compilers' intrinsics: GCC 12's do not say that a load reads memory. */
#define CV_AMX_ZERO(t)                    \
  case t:                                 \
    __asm__ volatile("tilezero %tmm" #t); \
    break;
CV_INLINE void cv_amx_zero(const int t) {
  switch (t) { CV_AMX_ZERO(0) CV_AMX_ZERO(1) CV_AMX_ZERO(2) CV_AMX_ZERO(3) }
}

#define CV_AMX_LOAD(t)                                                                        \
  case t:                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"(stride * 4) : "memory"); \
    break;
CV_INLINE void cv_amx_load(const int t, const float *p, ptrdiff_t stride) {
  switch (t) { CV_AMX_LOAD(4) CV_AMX_LOAD(6) CV_AMX_LOAD(7) }
}

#define CV_AMX_STORE(t)                                                                           \
  case t:                                                                                         \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"(stride * 4) : "memory"); \
    break;
CV_INLINE void cv_amx_store(const int t, float *p, ptrdiff_t stride) {
  switch (t) { CV_AMX_STORE(0) CV_AMX_STORE(1) CV_AMX_STORE(2) CV_AMX_STORE(3) }
}

#define CV_AMX_DOT(operation, sum, w)                            \
  case sum:                                                      \
    __asm__ volatile(operation " %tmm" #w ", %tmm4, %tmm" #sum); \
    break;
#define CV_AMX_DOTS(operation) \
  CV_AMX_DOT(operation, 0, 6)  \
  CV_AMX_DOT(operation, 1, 7)  \
  CV_AMX_DOT(operation, 2, 6)  \
  CV_AMX_DOT(operation, 3, 7)
CV_INLINE void cv_amx_dot_bytes(const int sum) {
  switch (sum) { CV_AMX_DOTS("tdpbusd") }
}

#if defined(__AMX_BF16__)
#define CV_AMX_BF16 1
CV_INLINE void cv_amx_dot_bf16(const int sum) {
  switch (sum) { CV_AMX_DOTS("tdpbf16ps") }
}
#else
#define CV_AMX_BF16 0
CV_INLINE void cv_amx_dot_bf16(const int sum) { (void)sum; }
#endif

#else
/* Nothing of it: callers ask for CV_AMX first. */
#define CV_AMX 0
#define CV_AMX_BF16 0
CV_INLINE int cv_amx_allowed(void) { return 0; }
CV_INLINE void cv_amx_shape(int rows, int cells) { (void)rows, (void)cells; }
CV_INLINE void cv_amx_release(void) {}
CV_INLINE void cv_amx_zero(const int t) { (void)t; }
CV_INLINE void cv_amx_load(const int t, const float *p, ptrdiff_t stride) {
  (void)t, (void)p, (void)stride;
}
CV_INLINE void cv_amx_store(const int t, float *p, ptrdiff_t stride) { (void)t, (void)p, (void)stride; }
CV_INLINE void cv_amx_dot_bytes(const int sum) { (void)sum; }
CV_INLINE void cv_amx_dot_bf16(const int sum) { (void)sum; }
#endif

_Static_assert(!CV_AMX || CV_DOT_PARTS == 1, "tiles read weights of bytes, not of 16 bits");

#endif
