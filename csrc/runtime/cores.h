/* The CPUs this process may use. */
#ifndef CONVOY_RUNTIME_CORES_H_
#define CONVOY_RUNTIME_CORES_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>

/* All CPUs any thread of this process may run on.  Not the calling thread's own mask: TVM's thread
 * pool narrows that of the thread that uses it, to one core on a 2-core machine. */
void cv_process_cpus(cpu_set_t *cpus);

/* CPUs of the physical core that `cpu` belongs to, itself included. */
void cv_siblings(int cpu, cpu_set_t *siblings);

/* Physical cores among `cpus`, no more than the CPU time its control groups grant; at least 1. */
int cv_physical_cores(const cpu_set_t *cpus);

#endif
