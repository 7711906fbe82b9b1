/* Does this CPU have the vectors a region was compiled for? */
#ifndef CONVOY_RUNTIME_VECTORS_H_
#define CONVOY_RUNTIME_VECTORS_H_

#include "convoy/entry.h"

/* The name of what of `vectors` this CPU, or its system, lacks; NULL: nothing. */
const char *cv_missing_vectors(cv_vectors vectors);

#endif
