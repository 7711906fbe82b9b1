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

static int least(int a, int b) { return a < b ? a : b; }

static int fewer(int count) { return (count + 1) / 2; }

static int more(int count, int most) { return least(2 * count, most); }

int cv_pace_threads(cv_pace *pace, int most) {
  if (pace->most != most) *pace = (cv_pace){.most = most, .home = most, .count = most, .patience = 1};
  return pace->count;
}

static void remember(cv_pace_times *times, double time) {
  times->of[times->count++ % CV_PACE_LAUNCHES] = (float)time;
}

/* What a caller has to expect: half of it is the mean, half the median.  Where many launches, but not most,
 * lose a core, teams that differ little in the mean differ much in what most callers see. */
static double typical(const cv_pace_times *times) {
  const int count = times->count < CV_PACE_LAUNCHES ? (int)times->count : CV_PACE_LAUNCHES;
  float sorted[CV_PACE_LAUNCHES] = {0};
  double sum = 0;
  for (int i = 0; i < count; i++) {
    const float time = times->of[i];
    int at = i;
    for (; at > 0 && sorted[at - 1] > time; at--) sorted[at] = sorted[at - 1];
    sorted[at] = time;
    sum += time;
  }
  return (sorted[count / 2] + sum / count) / 2;
}

/* A stretch of a trial, and its end.  Just after the number has changed, threads still share the cores
 * where they were with other processes.  So fewer threads that lose their cores are tried for longer, and
 * the first stretch does not count.  More threads are, as long as they gain: a single stretch may be luck.
 */
static void settle(cv_pace *pace, bool interrupted) {
  const bool fewer = pace->count < pace->home;
  const bool gains = typical(&pace->home_times) > (fewer ? 1 : kGain) * typical(&pace->tried_times);
  const bool goes_on = fewer ? interrupted || pace->tried > 0 : gains;
  if (goes_on && ++pace->tried < CV_TRIAL_STRETCHES) {
    if (fewer && pace->tried == 1) pace->tried_times.count = 0;
    return;
  }
  if (gains) {
    pace->home = pace->count;
    pace->home_times = pace->tried_times;
    pace->patience = CV_LEAST_PATIENCE;
    pace->fewer_was_slower = false;
  } else {
    const bool was_long = fewer && pace->tried > 0;
    pace->patience =
        least((was_long ? 4 : 2) * pace->patience, was_long ? CV_LONGEST_PATIENCE : CV_MOST_PATIENCE);
    pace->fewer_was_slower = fewer;
  }
  pace->count = pace->home;
  pace->waited = pace->tried = 0;
}

/* Whether to begin one. */
static void consider(cv_pace *pace, double speed, bool interrupted) {
  const double alike =
      pace->best * fewer(pace->home) / pace->most; /* of fewer threads, each having a core */
  const bool fewer_may_gain = pace->home > 1 && (speed < alike || interrupted);
  if (pace->home == pace->most && !fewer_may_gain) {
    pace->waited = 0;
    pace->home_times.count = 0; /* what a quiet machine does is no measure for a busy one */
    if (pace->patience > 1) pace->patience /= 2; /* soon a late stretch is looked into at once */
    return;
  }
  if (++pace->waited < pace->patience) return;
  const bool try_fewer = fewer_may_gain && (pace->home == pace->most || !pace->fewer_was_slower);
  pace->count = try_fewer ? fewer(pace->home) : more(pace->home, pace->most);
  pace->fewer_was_slower = false;
  pace->tried_times.count = 0;
}

void cv_pace_note(cv_pace *pace, double work, int64_t ns, int64_t interruptions) {
  remember(pace->count == pace->home ? &pace->home_times : &pace->tried_times, (double)ns / work);
  pace->work += work;
  pace->ns += ns;
  pace->interrupted += interruptions;
  if (++pace->launches < CV_STRETCH_LAUNCHES || pace->ns < CV_STRETCH_NS) return;
  const double speed = pace->work / (double)pace->ns;
  const bool interrupted = pace->interrupted > pace->ns / CV_INTERRUPTED_NS;
  pace->work = 0;
  pace->ns = pace->interrupted = pace->launches = 0;
  if (pace->count == pace->most && speed > pace->best) pace->best = speed;
  if (pace->count != pace->home) {
    settle(pace, interrupted);
  } else {
    consider(pace, speed, interrupted);
  }
}
