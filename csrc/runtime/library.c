/* The life of a library: what happens when it is loaded, when its process forks, and at the end. */
#include <pthread.h>

#include "runtime/prepared.h"
#include "runtime/team.h"

static void after_fork_in_child(void) {
  cv_team_after_fork_in_child();
  cv_unlock_prepared_in_child();
}

__attribute__((constructor)) static void load(void) {
  cv_team_load();
  pthread_atfork(cv_team_before_fork, cv_team_after_fork_in_parent, after_fork_in_child);
}

/* Runs at dlclose, when no call is under way, and at exit, when a thread of the application may still
 * be in one: its launch is waited for, a moment; if it goes on, the exit ends it. */
__attribute__((destructor)) static void unload(void) {
  if (cv_team_unload()) cv_release_prepared();
}
