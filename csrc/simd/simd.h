/* One vocabulary of vectors of CV_LANES floats; the instruction set is the one the compiler was told
 * to use (-mavx512f … , -mavx2 -mfma, else portable).
 *
 *   CV_LANES                     float32 elements of a vector; it stands for nothing else
 *   CV_REGISTERS                 of vectors
 *   CV_FUSES                     cv_fma is one instruction
 *   CV_ASKS_EACH_CHANNEL         a tile asks for a line with each channel: its vectors are so wide that
 *                                their loads and multiply-adds leave it the issue slots
 *   CV_ASK_EVERY                 channels of a tap for which a tile asks for one line of the next panel
 *
 *   cv_vec v                     CV_LANES float32
 *   cv_int i                     CV_LANES int32, for building floats from their bits
 *   cv_mask m                    CV_LANES truth values
 *
 *   cv_zero() cv_set1(f)
 *   cv_load(p) cv_store(p, v)    p aligned to a vector; cv_loadu, cv_storeu: aligned to a float
 *   cv_load1(p)                  *p in all lanes; moved as an integer, which takes none of the units that
 *                                compute: cv_set1(*p) may take one, as vbroadcastss does
 *   cv_load_n(p, n)              the first n lanes, 0 <= n <= CV_LANES, the others 0; nothing past
 *   cv_store_n(p, v, n)          them is touched
 *   cv_load_n_or(p, n, fill)     the same, the other lanes `fill`
 *   cv_load_where(m, p, i)       lane l is p[i[l]] where m is true, else 0, and nothing is touched
 *   cv_add cv_sub cv_mul cv_div
 *   cv_fma(a, b, c)              a * b + c   (portable: rounded twice)
 *   cv_fma_sum(a, b, c)          the same, c a sum among as many as there are registers: it keeps its own
 *   cv_fnma(a, b, c)             c - a * b
 *   cv_min(a, b) cv_max(a, b)    b if either is NaN, the rule of x86: cv_max(lo, x) keeps a NaN of x
 *   cv_sqrt cv_abs cv_neg cv_floor cv_ceil cv_round (to nearest even)
 *   cv_lt cv_le cv_eq            false if either is NaN
 *   cv_unordered(a, b)           true if either is NaN
 *   cv_select(m, t, f)           m ? t : f
 *   cv_mask_and cv_mask_or cv_mask_not
 *   cv_any(m)                    some lane of m is true
 *   cv_reduce_add(v) cv_reduce_max(v)   (max: no lane may be NaN)
 *   cv_transpose(v)              v[CV_LANES] as a square matrix, transposed in place
 *   cv_permute(v, i)             lane l is v's lane i[l], 0 <= i[l] < CV_LANES
 *   cv_hold(v)                   v, in a register: its load is not repeated as an operand of each use
 *   cv_prefetch(p)               the cache line of p, into L1
 *   cv_prefetch_l2(p)            the same, into L2 only
 *   cv_prefetch_store(p)         the same, about to be written
 *
 *   Bytes meet weights by cells of 32 bits: four channels of a pixel against four weights of each lane.
 *
 *   CV_DOT_PARTS                 1 where an instruction multiplies and adds four bytes; else 2
 *   cv_dot_part(x, part)         what a vector of cells is multiplied as: itself; or of two parts its even
 *                                or odd bytes, each as 16 bits, of which two products fit a sum of 32
 *   cv_dot(i, x, w)              i + the products of a lane of such a part, unsigned in x, signed in w,
 *                                where a weight is as wide as its byte in the part: exact
 *   cv_dot_at(i, x, p)           the same of weights at p, aligned, which take no register
 *   cv_dot_cell(p, part)         the part of the cell at p, in all lanes
 *
 *   cv_dot_shorts(i, x, w)       i + the products of the two int16 of a lane of each, modulo 2^32; i as
 * that of cv_fma_sum
 *
 *   cv_as_int(v) cv_as_float(i)  the same bits
 *   cv_to_int(v)                 rounded to nearest even; what is too low for int32 is its least number,
 *                                what is too high or NaN unspecified
 *   cv_from_int(i) cv_int_set1(n)
 *   cv_int_add cv_int_sub cv_int_mul   modulo 2^32
 *   cv_int_and cv_int_or
 *   cv_int_shl(i, n) cv_int_shr(i, n)   zeros are shifted in
 *
 *   cv_load_bytes(p)             CV_LANES unsigned bytes as int32; p of any alignment
 *   cv_store_bytes(p, i)         the lowest byte of each lane
 *   cv_load_bytes_n cv_store_bytes_n   the first n of them, as cv_load_n and cv_store_n
 *   cv_load_signed_bytes(p)      CV_LANES signed bytes as int32; p of any alignment
 *   cv_nibble(i, n)              the n-th four bits of each lane, from the lowest, signed, as floats
 *   cv_load_pairs(p, q)          lane l is byte l of p and, above it, of q, each as 16 bits: a cell's part
 *
 *   cv_shorts s                  2 * CV_LANES of 16 bits: operators compute modulo 2^16
 *   cv_load_shorts(p, q)         CV_LANES unsigned bytes of p, then as many of q
 *   cv_load_signed_shorts(p)     2 * CV_LANES signed bytes, of any alignment
 *
 *   A quad is four pixels of a block, side by side: 4 * CV_LANES unsigned bytes in a cv_int.
 *
 *   cv_load_quad(p, n)           the first n pixels, a constant, the others 0; nothing past them is
 *   cv_store_quad(p, q, n)       touched; p of any alignment
 *   cv_quad_by_channel(q)        lane l is the cell of channel l's four bytes
 *   cv_quad_of(a, b, c, d, add)  int32 of four pixels as bytes: held in int16's range, then plus `add`,
 *                                small and the same in all lanes, then held in a byte's
 *   cv_max_bytes(a, b)
 *   cv_quads_of_cells(q)         q[i] are cell i of CV_LANES pixels; become those pixels, four in each
 *   cv_cells_of_quads(q)         the other way; both in place, of q[CV_LANES / 4]
 *   cv_pick(q, i)                byte l is q's byte i[l], one of the same pixel, or 0 where that is 255
 *
 *   cv_pixel v                   CV_LANES unsigned bytes
 *   cv_load_pixel(p) cv_store_pixel(p, v)   p of any alignment
 *   cv_max_pixel(a, b)
 */
#ifndef CONVOY_SIMD_SIMD_H_
#define CONVOY_SIMD_SIMD_H_

#include <stddef.h>
#include <stdint.h>

/* Vectors live in registers only where everything that touches them is inlined. */
#define CV_INLINE static inline __attribute__((always_inline))

/* A function that is the same in all regions.  A unit with CV_LINKS_KERNELS sees but its declaration, and
 * is linked with the unit of kernels/ that defines it, which is compiled once (toolchain/compiler.py).  Any
 * other has it for itself.
 *
 *   CV_SHARED void name(...) CV_SYMBOL(name);   declares it: with maps of bfloat16 (kernels/map.h) it is
 *                                               another, by another symbol
 *   CV_FORM(name, (...), statements)            defines one for numbers that a region names, a form, which
 *                                               takes the compiler seconds; in a unit of its own, with
 *                                               CV_DEFINES_FORMS
 *   CV_FORM_PARTS(definitions)                  what the form after it calls */
#if CV_LINKS_KERNELS
#define CV_SHARED __attribute__((noinline, visibility("hidden")))
#define CV_DEFINES(header) CV_DEFINES_##header
#else
#define CV_SHARED static __attribute__((noinline, unused))
#define CV_DEFINES(header) 1
#endif
#if CV_LINKS_KERNELS && CV_BFLOAT16_MAPS
#define CV_SYMBOL(name) __asm__(#name "_bf16")
#else
#define CV_SYMBOL(name)
#endif
#if CV_LINKS_KERNELS && !CV_DEFINES_FORMS
#define CV_FORM(name, arguments, ...) CV_SHARED void name arguments CV_SYMBOL(name);
#define CV_FORM_PARTS(...)
#else
#define CV_FORM_PARTS(...) __VA_ARGS__
#define CV_FORM(name, arguments, ...)            \
  CV_SHARED void name arguments CV_SYMBOL(name); \
  CV_SHARED void name arguments { __VA_ARGS__ }
#endif

/* Before a loop of constant trip count: unroll it whole, so that an array indexed by it is registers. */
#if defined(__clang__)
#define CV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CV_UNROLL _Pragma("GCC unroll 64")
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "simd/avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "simd/avx2.h"
#else
#include "simd/portable.h"
#endif
#include "simd/bfloat16.h"

#if CV_DOT_PARTS == 1
CV_INLINE cv_int cv_dot_part(cv_int x, const int part) {
  (void)part;
  return x;
}
#endif
#ifndef CV_DOTS_IN_MEMORY
CV_INLINE cv_int cv_dot_at(cv_int i, cv_int x, const float *p) { return cv_dot(i, x, *(const cv_int *)p); }
CV_INLINE cv_int cv_dot_cell(const float *p, const int part) {
  return cv_dot_part(cv_as_int(cv_load1(p)), part);
}
#endif

CV_INLINE void cv_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }
CV_INLINE void cv_prefetch_l2(const void *p) { __builtin_prefetch(p, 0, 2); }
CV_INLINE void cv_prefetch_store(const void *p) { __builtin_prefetch(p, 1, 3); }

#endif
