/* The CPUs this process may use. */
#ifndef CONVOY_RUNTIME_CORES_H_
#define CONVOY_RUNTIME_CORES_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdint.h>

/* All CPUs any thread of this process may run on.  Not the calling thread's own mask: TVM's thread
 * pool narrows that of the thread that uses it, to one core on a 2-core machine. */
void cv_process_cpus(cpu_set_t *cpus);

/* core_of[cpu] for each of `cpus`: a number of the physical core it belongs to, the smallest of that
 * core's CPUs; -1 for all other CPUs. */
void cv_find_cores(const cpu_set_t *cpus, int16_t core_of[CPU_SETSIZE]);

/* The threads worth running: physical cores in `core_of`, no more than the CPU time the control
 * groups of this process grant; at least 1. */
int cv_count_cores(const int16_t core_of[CPU_SETSIZE]);

#endif
