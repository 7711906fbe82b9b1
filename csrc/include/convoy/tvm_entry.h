/* How TVM calls a region: checks its arguments, then calls the plain C function. */
#ifndef CONVOY_TVM_ENTRY_H_
#define CONVOY_TVM_ENTRY_H_

#include "convoy/entry.h"

/* Checks `args` against `entry` and runs the region on them.  0, or -1 with a TVM error raised that
 * names the function and the argument: TypeError for a wrong kind or dtype, ValueError for a wrong
 * count, shape, device, layout or alignment, MemoryError if the scratch memory cannot be had. */
int convoy_call_region(const cv_entry *entry, const cv_tvm_any *args, int32_t count);

#endif
