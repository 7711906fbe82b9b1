/* Settings in the environment. */
#ifndef CONVOY_RUNTIME_ENVIRONMENT_H_
#define CONVOY_RUNTIME_ENVIRONMENT_H_

/* The number, 0 or more, that the variable `name` holds; `otherwise` if it is unset or empty.  If it
 * holds anything else, too, and then a line on stderr says so, as OpenMP's runtimes do: a program that
 * runs by default goes on, but nobody believes that the setting works. */
int cv_number_setting(const char *name, int otherwise);

#endif
