/* What the control groups of this process allow it: cgroup v2, and v1. */
#ifndef CONVOY_RUNTIME_GROUPS_H_
#define CONVOY_RUNTIME_GROUPS_H_

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The first line of a file; false if there is none. */
static inline bool cv_read_line(const char *path, char *line, int size) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  const bool got = fgets(line, size, file) != NULL;
  fclose(file);
  return got;
}

/* What the group whose files are in `folder` allows; `none` where it says nothing. */
typedef double (*cv_group_limit)(const char *folder, double none);

/* The least that this process's group and all above it allow, at most `none`.  `controller` is a name of
 * v1, such as "cpu". */
static inline double cv_least_of_groups(const char *controller, cv_group_limit limit_of, double none) {
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return none;
  const size_t letters = strlen(controller);
  double least = none;
  char line[4096];
  while (fgets(line, sizeof line, file)) { /* "0::/path" in v2, "4:cpu,cpuacct:/path" in v1 */
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = '\0';
    ++controllers;
    const bool unified = *controllers == '\0';
    const bool named = strncmp(controllers, controller, letters) == 0 && strchr(",", controllers[letters]);
    if (!unified && !named) continue;
    char folder[4224];
    for (;;) { /* from the group itself up to the root */
      if (strcmp(group, "/") == 0) *group = '\0';
      snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s%s", unified ? "" : "/", unified ? "" : controller,
               group);
      const double limit = limit_of(folder, none);
      if (limit < least) least = limit;
      char *slash = strrchr(group, '/');
      if (!slash) break;
      *slash = '\0';
    }
  }
  fclose(file);
  return least;
}

#endif
