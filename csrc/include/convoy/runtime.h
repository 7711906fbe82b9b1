/* What a generated region needs at run time: a team of threads, a barrier, an arena.
 *
 * One launch of a team runs at a time in a library: a second caller waits.  So its arena is shared by all
 * regions of the library and grows to the largest one.
 */
#ifndef CONVOY_RUNTIME_H_
#define CONVOY_RUNTIME_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Thread `id` of a team of `count`; the caller of convoy_launch is thread 0. */
typedef struct cv_thread {
  int id;
  int count;
} cv_thread;

/* `arena` is 2 MB-aligned, holds the bytes asked for, and has unspecified contents. */
typedef void (*convoy_task)(cv_thread thread, void *arena, void *context);

/* Runs task on `threads` threads (0: the library's setting; never more than that) and returns when all are
 * done.  On a machine that is busy with other work it may take fewer, which `work`, an estimate in any
 * unit, the same in all regions of a library, lets it compare (runtime/pace.h); 0: not known.
 *
 * A launch of one thread runs beside others, in memory of its own; a launch of a team waits until the one
 * before it is done.
 *
 * CONVOY_OUT_OF_MEMORY if the arena cannot be had, CONVOY_NESTED_CALL from within a team's launch: then
 * nothing was run. */
int convoy_launch(convoy_task task, void *context, size_t arena_bytes, int threads, double work);

/* Waits until all threads of the running team are here.  Makes all their writes visible. */
void convoy_barrier(cv_thread thread);

/* A barrier in two halves: true to the last thread that comes, at once, which sees all writes of the others
 * and then lets them go; false to the others, once it has, who see its writes. */
bool convoy_arrive(cv_thread thread);
void convoy_release(cv_thread thread);

/* The threads a launch uses: set at run time, else CONVOY_NUM_THREADS, else TVM_NUM_THREADS,
 * else what was compiled in, else the physical cores this process may run on.  A variable that is 0
 * or empty counts as unset; one that is no number, too, with a line on stderr when the library is
 * loaded. */
int convoy_num_threads(void);
void convoy_set_num_threads(int threads);

/* Called once, when a library is loaded: moves constant weights from the library's file into memory in
 * huge pages, under the same addresses, as far as they fill any.  They are read in one sweep for each
 * image, and 4 KB pages would cost a TLB miss each.
 * Does nothing where there are no huge pages, or no memory for them, or with CONVOY_HUGE_PAGES=0. */
void convoy_place_weights(const void *weights, size_t bytes);

/* Whether kernels may use AMX tiles: the CPU has them for bytes and bfloat16, and the system lets this
 * process, which the first call asks for.  Never with CONVOY_AMX=0. */
int convoy_has_amx(void);

#endif
