/* What a classic TVM may call a region with: see entry_calls.h. */
#include "convoy/classic_entry.h"
#include "tests/runtime/entry_calls.h"

void TVMAPISetLastError(const char *text) { note_error(text); }

static int call(const cv_entry *entry, drawn *x, drawn *y, int count) {
  cv_classic_value args[5] = {{0}};
  args[0].handle = "sample"; /* the function's name comes first */
  args[1].handle = &x->tensor, args[2].handle = &y->tensor;
  return convoy_call_classic(entry, args, count + 1);
}

int main(void) { return check_calls(call); }
