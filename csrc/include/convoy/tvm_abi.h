/* The part of TVM FFI's stable C ABI (0.1) that a region's entry needs, declared anew so that a
 * region compiles without TVM's headers.  tests/deploy compares every offset with theirs.
 */
#ifndef CONVOY_TVM_ABI_H_
#define CONVOY_TVM_ABI_H_

#include <stddef.h>
#include <stdint.h>

enum {
  CV_TVM_NONE = 0,
  CV_TVM_INT = 1,
  CV_TVM_DLTENSOR = 7,
  CV_TVM_RAW_STRING = 8,
  CV_TVM_TENSOR = 70
}; /* type_index */
enum { CV_DL_CPU = 1 };                                                                  /* device_type */
enum { CV_DL_INT, CV_DL_UINT, CV_DL_FLOAT, CV_DL_HANDLE, CV_DL_BFLOAT, CV_DL_BOOL = 6 }; /* dtype code */

typedef struct cv_tvm_any {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t integer;
    void *pointer;
  };
} cv_tvm_any;

typedef struct cv_tvm_object { /* the header of every object; a tensor's cv_dltensor follows it */
  uint64_t reference_count;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void *self, int flags);
} cv_tvm_object;

typedef struct cv_dltensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t dtype_code, dtype_bits;
  uint16_t dtype_lanes;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: dense */
  uint64_t byte_offset;
} cv_dltensor;

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
void TVMFFIErrorMoveFromRaised(void **error); /* the calling thread's, NULL: none; the caller owns it */
void TVMFFIErrorSetRaised(void *error);       /* keeps a reference of its own */
int TVMFFIObjectDecRef(void *object);

#define CV_TVM_EXPORT __attribute__((visibility("default")))

#endif
