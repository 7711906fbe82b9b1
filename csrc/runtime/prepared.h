/* Prepared memory's part in the life of the library. */
#ifndef CONVOY_RUNTIME_PREPARED_H_
#define CONVOY_RUNTIME_PREPARED_H_

/* At unloading, when no launch is under way and none will begin. */
void cv_release_prepared(void);

/* In a forked child: a thread that was filling memory is not there to finish. */
void cv_unlock_prepared_in_child(void);

#endif
