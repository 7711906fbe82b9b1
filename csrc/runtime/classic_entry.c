/* The two functions by which a program with classic TVM reads and sets the number of threads of a library,
 * in TVM's packed calling convention.  The names TVM finds them by are also those of the C functions they
 * call, so they get them by assembler label. */
#include "convoy/classic_abi.h"
#include "convoy/runtime.h"

CV_TVM_EXPORT int packed_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                     cv_classic_value *result, int *result_kind,
                                     void *self) __asm__("convoy_num_threads");
CV_TVM_EXPORT int packed_set_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                         cv_classic_value *result, int *result_kind,
                                         void *self) __asm__("convoy_set_num_threads");

__attribute__((weak)) int packed_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                             cv_classic_value *result, int *result_kind, void *self) {
  (void)args, (void)kinds, (void)self;
  if (count != 0) {
    TVMAPISetLastError("convoy_num_threads: expected no argument; call it without any");
    return -1;
  }
  result->integer = convoy_num_threads();
  *result_kind = CV_CLASSIC_INT;
  return 0;
}

__attribute__((weak)) int packed_set_num_threads(const cv_classic_value *args, const int *kinds, int count,
                                                 cv_classic_value *result, int *result_kind, void *self) {
  (void)result, (void)self;
  if (count != 1 || kinds[0] != CV_CLASSIC_INT) {
    TVMAPISetLastError(
        "convoy_set_num_threads: expected one int; pass a number of threads, 0 for the default");
    return -1;
  }
  const int64_t threads = args[0].integer;
  convoy_set_num_threads(threads > 0 ? (int)(threads < 1 << 20 ? threads : 1 << 20) : 0);
  *result_kind = CV_CLASSIC_NULL;
  return 0;
}
