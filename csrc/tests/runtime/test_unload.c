/* Loads a library, runs it and unloads it, again and again: its threads end before its code goes. */
#include <dlfcn.h>
#include <unistd.h>

#include "tests/check.h"

enum { LOADS = 100 };

typedef int (*run_some)(int seed, int threads);

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "expected the library's path\n");
    return 2;
  }
  for (int i = 0; i < LOADS; ++i) {
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library, "load %d: %s", i, dlerror());
    if (!library) break;
    const run_some run = (run_some)dlsym(library, "run_some");
    CHECK(run && run(1000 * i, 1 + i % 4), "run %d went wrong", i);
    if (i % 3 == 0) usleep(500); /* the workers sleep when the library goes, or are still awake */
    CHECK(dlclose(library) == 0, "unload %d: %s", i, dlerror());
  }
  return check_done();
}
