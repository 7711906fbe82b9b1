#include "runtime/pace.h"

enum {
  CV_STRETCH_NS = 100000000, /* many time slices of a scheduler, of 3 to 4 ms */
  CV_STRETCH_LAUNCHES = 8,
  CV_LEAST_PATIENCE = 4,
  CV_MOST_PATIENCE = 32,    /* stretches: a machine that is quiet again is noticed within some seconds */
  CV_LONGEST_PATIENCE = 64, /* after trials of fewer threads in vain, each of which takes some stretches */
  CV_INTERRUPTED_NS = 12500000, /* beside a process that computes a thread loses its core twice as often */
  CV_TRIAL_STRETCHES = 4,       /* a scheduler takes one or two to give fewer threads their share */
};
/* Of more threads over fewer: stretches of equal threads differ by as much on a busy machine.  Fewer need
 * none: they wait less for each other, and leave more to others. */
static const double kGain = 1.1;
static const double kWeight = 0.25; /* of the last stretch in the mean of those at home */

static int least(int a, int b) { return a < b ? a : b; }

static int fewer(int count) { return (count + 1) / 2; }

static int more(int count, int most) { return least(2 * count, most); }

int cv_pace_threads(cv_pace *pace, int most) {
  if (pace->most != most)
    *pace = (cv_pace){.most = most, .home = most, .count = most, .patience = 1, .interrupted = -1};
  return pace->count;
}

/* The speed a trial is compared with: of the last stretches here, as one is too much a matter of luck. */
static void remember(cv_pace *pace, double speed) {
  pace->home_speed += (speed - pace->home_speed) * (pace->home_speed > 0 ? kWeight : 1);
}

/* A stretch of a trial, and its end.  Just after the number has changed, threads still share the cores
 * where they were with other processes.  So fewer threads that lose their cores are tried for longer, and
 * the first stretch does not count. */
static void settle(cv_pace *pace, double speed, bool interrupted) {
  const bool tried_fewer = pace->count < pace->home;
  if (tried_fewer && (interrupted || pace->tried > 0)) {
    if (pace->tried > 0) pace->tried_speed += speed / (CV_TRIAL_STRETCHES - 1);
    if (++pace->tried < CV_TRIAL_STRETCHES) return;
    speed = pace->tried_speed;
  }
  if (speed > (tried_fewer ? 1 : kGain) * pace->home_speed) {
    pace->home = pace->count;
    pace->home_speed = speed;
    pace->patience = CV_LEAST_PATIENCE;
    pace->fewer_was_slower = false;
  } else {
    const bool was_long = pace->tried > 0;
    pace->patience =
        least((was_long ? 4 : 2) * pace->patience, was_long ? CV_LONGEST_PATIENCE : CV_MOST_PATIENCE);
    pace->fewer_was_slower = tried_fewer;
  }
  pace->count = pace->home;
  pace->waited = pace->tried = 0;
  pace->tried_speed = 0;
}

/* Whether to begin one. */
static void consider(cv_pace *pace, double speed, bool interrupted) {
  const double alike =
      pace->best * fewer(pace->home) / pace->most; /* of fewer threads, each having a core */
  const bool fewer_may_gain = pace->home > 1 && (speed < alike || interrupted);
  if (pace->home == pace->most && !fewer_may_gain) {
    pace->waited = 0;
    pace->home_speed = 0; /* what a quiet machine does is no measure for a busy one */
    if (pace->patience > 1) pace->patience /= 2; /* soon a late stretch is looked into at once */
    return;
  }
  remember(pace, speed);
  if (++pace->waited < pace->patience) return;
  const bool try_fewer = fewer_may_gain && (pace->home == pace->most || !pace->fewer_was_slower);
  pace->count = try_fewer ? fewer(pace->home) : more(pace->home, pace->most);
  pace->fewer_was_slower = false;
}

void cv_pace_note(cv_pace *pace, double work, int64_t ns, cv_interruptions interruptions) {
  pace->work += work;
  pace->ns += ns;
  if (++pace->launches < CV_STRETCH_LAUNCHES || pace->ns < CV_STRETCH_NS) return;
  const double speed = pace->work / (double)pace->ns;
  const int64_t before = pace->interrupted;
  pace->interrupted = interruptions();
  const bool interrupted = before >= 0 && pace->interrupted - before > pace->ns / CV_INTERRUPTED_NS;
  pace->work = 0;
  pace->ns = pace->launches = 0;
  if (pace->count == pace->most && speed > pace->best) pace->best = speed;
  if (pace->count != pace->home) {
    settle(pace, speed, interrupted);
  } else {
    consider(pace, speed, interrupted);
  }
}
