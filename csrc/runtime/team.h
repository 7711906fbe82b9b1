/* The thread team's part in the life of the library. */
#ifndef CONVOY_RUNTIME_TEAM_H_
#define CONVOY_RUNTIME_TEAM_H_

/* Looks at the machine; no thread is started before the first launch. */
void cv_team_load(void);

/* Around a fork, so that none happens in the middle of a launch. */
void cv_team_before_fork(void);
void cv_team_after_fork_in_parent(void);
void cv_team_after_fork_in_child(void);

/* Ends the workers and keeps later launches waiting for the end of the process.  Where a launch is
 * under way and goes on for more than a moment, nothing is ended. */
void cv_team_unload(void);

#endif
