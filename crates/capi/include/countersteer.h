/*
 * libcountersteer: counters around a region of code.
 *
 *     cs_region *region;
 *     if (cs_open("task_clock,page_faults", 0, &region) < 0)
 *         errx(1, "%s", cs_strerror());
 *     cs_start(region);
 *     ...
 *     cs_stop(region);
 *
 * Errors    Functions that return int return a code below 0 when they fail; cs_strerror() then says what failed and what
 *           mends it.
 * Threads   A region counts the thread that opened it. Different regions may be used at the same time by different threads.
 *           One region may be used by any thread, but by one at a time: a second one gets CS_ERROR_STATE. Nothing may be
 *           called on a region while or after it is closed. Signal handlers must not call the library.
 * Fork      A child process opens its own regions. It may close those of its parent, and does not count with them.
 * Cost      cs_start and cs_stop read the counters: one read(2) per PMU with events in the string, and one for all that the
 *           kernel counts itself; none for hardware events where programs may read counters themselves (x86). The counters
 *           run from cs_open to cs_close, so a region that is open and not started costs what it adds to a context switch.
 * Accuracy  Counts are raw and never scaled. The way out of cs_start and into cs_stop is counted, too: an empty region shows
 *           how much that is. Where counters are shared, running_ns is less than enabled_ns.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef COUNTERSTEER_H
#define COUNTERSTEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Open counters of a thread. */
typedef struct cs_region cs_region;

/* What an event counted in all stretches since cs_open or cs_reset. Strings are valid until cs_close. */
typedef struct cs_count {
    const char *name;      /* the event, as it was asked for */
    const char *unit;      /* "ns", ...; "" for plain counts */
    const char *core_type; /* the PMU of the cores it happened on, as "cpu_atom"; NULL where all cores are alike, or for events
                              of the kernel */
    uint64_t value;        /* how often it happened, or how much; means nothing unless available is 1 */
    uint64_t enabled_ns;   /* nanoseconds during which it was to be counted while the thread ran */
    uint64_t running_ns;   /* nanoseconds during which it was */
    uint32_t available;    /* 0: this type of cores cannot count it, or it never had a counter; not the same as a count of 0 */
    uint32_t reserved;     /* 0 */
} cs_count;

/* Flags of cs_open. */
#define CS_INHERIT 1u /* also threads and processes born from then on; their times add up, and reading takes a read(2) */

/* Codes of failures. */
#define CS_ERROR_ARGUMENT (-1)   /* a null pointer, a string that is no UTF-8, unknown flags */
#define CS_ERROR_EVENTS (-2)     /* the event string is wrong, or names what this machine does not have */
#define CS_ERROR_PERMISSION (-3) /* not permitted: kernel.perf_event_paranoid */
#define CS_ERROR_REFUSED (-4)    /* the kernel cannot count it: no counter, too few, too many files, no such thread */
#define CS_ERROR_STATE (-5)      /* started twice, stopped twice, or in use by another thread at this moment */
#define CS_ERROR_SYSTEM (-6)     /* reading failed */
#define CS_ERROR_INTERNAL (-7)   /* a defect of the library */

/*
 * Opens counters of the calling thread for events as `steer stat -e` takes them (see `steer events`), as
 * "instructions,cycles", "task_clock,page_faults:u", "cpu_core/event=0x2e,umask=0x41/". Returns 0 and a region in *out, or a
 * code and NULL there. Costs some microseconds per event, the first time some milliseconds to look at the machine.
 */
int cs_open(const char *events, unsigned flags, cs_region **out);

/* The same for another thread, by its number as gettid(2) gives it. Reading takes a read(2). */
int cs_open_thread(const char *events, int tid, unsigned flags, cs_region **out);

/* Begins a stretch. Returns 0, or a code. */
int cs_start(cs_region *region);

/* Ends the stretch and adds what it counted to the sums. Returns 0, or a code. */
int cs_stop(cs_region *region);

/*
 * Writes the first n counts to out, in the order of the event string; on a machine with several types of cores an event of
 * cores has one for each. A stretch that has begun is counted up to now. Returns how many counts there are, which may be more
 * than n (n = 0 asks for that alone, and out may then be NULL), or a code.
 */
int cs_read(cs_region *region, cs_count *out, size_t n);

/* Sets the sums to 0; a stretch that has begun goes on from here. Returns 0, or a code. */
int cs_reset(cs_region *region);

/* 1 if only user mode is counted, since more is not permitted; else 0; or a code. */
int cs_user_only(cs_region *region);

/* Closes the counters. NULL is allowed. */
void cs_close(cs_region *region);

/* What the calling thread's last failure was, in a sentence; "" before the first. Valid until its next failure. */
const char *cs_strerror(void);

/* The library's version, as "0.1.0". */
const char *cs_version(void);

#ifdef __cplusplus
}
#endif

#endif
