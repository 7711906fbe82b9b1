/* What a modern TVM may call a region with: see entry_calls.h. */
#include "convoy/tvm_entry.h"
#include "tests/runtime/entry_calls.h"

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {
  CHECK(strstr(kind, "Error"), "an error of the kind '%s'", kind);
  note_error(text);
}

static int call(const cv_entry *entry, drawn *x, drawn *y, int count) {
  static const int kinds[] = {CV_TVM_TENSOR, CV_TVM_DLTENSOR, CV_TVM_NONE, CV_TVM_INT, 64};
  cv_tvm_any args[4] = {{0}};
  drawn *const both[] = {x, y};
  for (int i = 0; i < 2; i++) {
    args[i].type_index = kinds[draw(40) ? draw(2) : draw(5)];
    args[i].pointer = args[i].type_index == CV_TVM_DLTENSOR ? (void *)&both[i]->tensor : &both[i]->header;
  }
  return convoy_call_region(entry, args, count);
}

int main(void) { return check_calls(call); }
