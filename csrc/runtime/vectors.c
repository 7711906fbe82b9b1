/* Implements runtime/vectors.h. */
#include "runtime/vectors.h"

#include <stddef.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Compilers of 2021 have no name for it. */
static int has_avx_vnni(void) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

const char *cv_missing_vectors(cv_vectors vectors) {
  if (vectors >= CV_VECTORS_AVX512) {
    const int has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!has) return "AVX-512 (F, BW, DQ, VL)";
  }
  if (vectors >= CV_VECTORS_AVX2) {
    const int has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!has) return "AVX2 and FMA";
  }
  if (vectors == CV_VECTORS_AVX2_VNNI && !has_avx_vnni()) return "AVX-VNNI";
  if (vectors >= CV_VECTORS_AVX512_VNNI && !__builtin_cpu_supports("avx512vnni")) return "AVX512_VNNI";
  if (vectors >= CV_VECTORS_AVX512_BF16 && !__builtin_cpu_supports("avx512bf16")) return "AVX512_BF16";
  return NULL;
}

#else

const char *cv_missing_vectors(cv_vectors vectors) {
  (void)vectors;
  return NULL;
}

#endif
