/* Implements convoy/trace.h, and what a TVM program calls to trace a library: only libraries that are
 * compiled to be profiled have it. */
#include "convoy/trace.h"

#include <stdatomic.h>

#include "convoy/tvm_abi.h"

static cv_event *listener;
static int64_t room;
static atomic_llong count;
static atomic_int threads;
static _Thread_local int own = -1;

enum { DEEPEST = 64 };

/* Calls of TVM's virtual machine that are under way, one in the other. */
static struct {
  const char *name;
  double begin;
} calls[DEEPEST];
static int depth;

void convoy_trace_start(cv_event *events, int64_t size) {
  atomic_store(&count, 0);
  room = size, depth = 0, listener = events;
}

int64_t convoy_trace_stop(void) {
  listener = NULL;
  return atomic_load(&count);
}

double convoy_trace_begin(void) { return listener ? convoy_seconds() : 0; }

void convoy_trace_end(const char *name, int step, double begin) {
  const double end = convoy_seconds();
  if (own < 0) own = atomic_fetch_add(&threads, 1);
  const int64_t at = atomic_fetch_add(&count, 1);
  if (listener && at < room) listener[at] = (cv_event){name, begin, end, step, own};
}

/* (address of events, room): starts; (0, 0): stops, and gives the number of events. */
CV_TVM_EXPORT int __tvm_ffi_convoy_trace(void *self, const cv_tvm_any *args, int32_t given,
                                         cv_tvm_any *result) {
  (void)self;
  if (given != 2 || args[0].type_index != CV_TVM_INT || args[1].type_index != CV_TVM_INT) {
    TVMFFIErrorSetRaisedFromCStr("TypeError",
                                 "convoy_trace: expected an address and a number; pass 0, 0 to stop");
    return -1;
  }
  int64_t events = 0;
  if (args[0].integer == 0) {
    events = convoy_trace_stop();
  } else {
    convoy_trace_start((cv_event *)(intptr_t)args[0].integer, args[1].integer); /* NOLINT */
  }
  *result = (cv_tvm_any){.type_index = CV_TVM_INT, .integer = events};
  return 0;
}

/* An instrument of TVM's virtual machine, called before and after each of its calls with (function, name,
 * whether it is before, result, the call's arguments). */
CV_TVM_EXPORT int __tvm_ffi_convoy_trace_call(void *self, const cv_tvm_any *args, int32_t given,
                                              cv_tvm_any *result) {
  (void)self, (void)result;
  if (given < 3 || args[1].type_index != CV_TVM_RAW_STRING) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "convoy_trace_call: expected the call of an instrument");
    return -1;
  }
  if (args[2].integer & 1) {
    if (depth < DEEPEST) {
      calls[depth].name = args[1].pointer;
      calls[depth].begin = convoy_trace_begin();
    }
    depth++;
  } else if (depth > 0 && --depth < DEEPEST && calls[depth].begin > 0) {
    convoy_trace_end(calls[depth].name, -1, calls[depth].begin);
  }
  return 0;
}
