#include "runtime/cores.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/groups.h"

/* A kernel CPU list, such as "0-3,8,10-11". */
static void parse_cpu_list(const char *list, cpu_set_t *cpus) {
  while (*list) {
    char *end;
    const long first = strtol(list, &end, 10);
    if (end == list) return;
    long last = first;
    if (*end == '-') {
      list = end + 1;
      last = strtol(list, &end, 10);
      if (end == list) return;
    }
    for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, cpus);
    if (*end != ',') return;
    list = end + 1;
  }
}

void cv_process_cpus(cpu_set_t *cpus) {
  CPU_ZERO(cpus);
  DIR *tasks = opendir("/proc/self/task");
  if (tasks) {
    for (const struct dirent *entry; (entry = readdir(tasks));) {
      const int task = atoi(entry->d_name);
      cpu_set_t mask;
      if (task > 0 && sched_getaffinity(task, sizeof mask, &mask) == 0) CPU_OR(cpus, cpus, &mask);
    }
    closedir(tasks);
  }
  if (CPU_COUNT(cpus) == 0 && sched_getaffinity(0, sizeof *cpus, cpus) != 0) CPU_SET(0, cpus);
}

/* The first CPU of the physical core that `cpu` belongs to; itself if the kernel does not say. */
static int first_sibling(int cpu) {
  static const char *const names[] = {"core_cpus_list", "thread_siblings_list"}; /* new, old kernels */
  for (int i = 0; i < 2; ++i) {
    char path[96], line[1024];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[i]);
    cpu_set_t siblings;
    CPU_ZERO(&siblings);
    if (cv_read_line(path, line, sizeof line)) parse_cpu_list(line, &siblings);
    for (int other = 0; other < cpu; ++other) {
      if (CPU_ISSET(other, &siblings)) return other;
    }
    if (CPU_COUNT(&siblings) > 0) break;
  }
  return cpu;
}

void cv_find_cores(const cpu_set_t *cpus, int16_t core_of[CPU_SETSIZE]) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    core_of[cpu] = (int16_t)(CPU_ISSET(cpu, cpus) ? first_sibling(cpu) : -1);
  }
}

/* CPUs' worth of time the group in `folder` is granted, or `none`: cgroup v2, then v1. */
static double group_quota(const char *folder, double none) {
  char path[4352], line[64];
  long quota, period;
  snprintf(path, sizeof path, "%s/cpu.max", folder);
  if (cv_read_line(path, line, sizeof line)) {
    return sscanf(line, "%ld %ld", &quota, &period) == 2 && period > 0 ? (double)quota / (double)period
                                                                       : none;
  }
  snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
  if (!cv_read_line(path, line, sizeof line) || (quota = atol(line)) <= 0) return none;
  snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
  if (!cv_read_line(path, line, sizeof line) || (period = atol(line)) <= 0) return none;
  return (double)quota / (double)period;
}

int cv_count_cores(const int16_t core_of[CPU_SETSIZE]) {
  cpu_set_t distinct;
  CPU_ZERO(&distinct);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (core_of[cpu] >= 0) CPU_SET(core_of[cpu], &distinct);
  }
  const int cores = CPU_COUNT(&distinct);
  /* Rounded down: a team that outruns its quota is stopped as a whole in the middle of a layer. */
  const int threads = (int)cv_least_of_groups("cpu", group_quota, cores);
  return threads < 1 ? 1 : threads;
}
