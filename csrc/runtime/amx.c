/* May this process use AMX tiles?  Implements a part of convoy/runtime.h.
 *
 * Linux keeps their 8 KB for those processes only that ask; it refuses where it is too old or a thread has
 * too small a stack for signals.  So only who would use them asks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "convoy/runtime.h"
#include "runtime/environment.h"

static int has_amx;

#if defined(__x86_64__)
#include <cpuid.h>

static void ask(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILES = 18 };    /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
  const unsigned all = 1u << 22 | 1u << 24 | 1u << 25; /* AMX-BF16, AMX-TILE, AMX-INT8 */
  unsigned a, b, c, d;
  if (!cv_number_setting("CONVOY_AMX", 1)) return;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & all) != all) return;
  has_amx = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILES) == 0;
}
#else
static void ask(void) {}
#endif

int convoy_has_amx(void) {
  static pthread_once_t asked = PTHREAD_ONCE_INIT;
  pthread_once(&asked, ask);
  return has_amx;
}
