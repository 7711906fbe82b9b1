/* The library that test_unload.c loads: the runtime and one function. */
#include "tests/runtime/rounds.h"

__attribute__((visibility("default"))) int run_some(int seed, int threads) {
  convoy_set_num_threads(threads);
  return launch_rounds(seed, 5, 0, 0);
}
