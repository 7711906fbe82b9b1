/* The life of a library: what happens when it is loaded, when its process forks, and at the end. */
#include <pthread.h>

#include "runtime/team.h"

__attribute__((constructor)) static void load(void) {
  cv_team_load();
  pthread_atfork(cv_team_before_fork, cv_team_after_fork_in_parent, cv_team_after_fork_in_child);
}

/* Runs at dlclose, when no call is under way, and at exit, when a thread of the application may still
 * be in one: its launch is waited for, a moment; if it goes on, the exit ends it. */
__attribute__((destructor)) static void unload(void) { cv_team_unload(); }
