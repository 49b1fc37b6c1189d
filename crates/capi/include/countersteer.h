/*
 * libcountersteer: counters around a region of code, and pages that threads share with the engine that steers them.
 *
 *     cs_region *region;
 *     if (cs_open("task_clock,page_faults", 0, &region) < 0)
 *         errx(1, "%s", cs_strerror());
 *     cs_start(region);
 *     ...
 *     cs_stop(region);
 *
 * Errors    Functions that return int return a code below 0 when they fail; cs_strerror() then returns the failure and its
 *           remedy.
 * Threads   A region counts the thread that opened it. Different regions may be used at the same time by different threads.
 *           One region may be used by any thread, but by one at a time: a second one gets CS_ERROR_STATE. No function may be
 *           called on a region while or after it is closed. Signal handlers must not call the library.
 * Fork      A child process opens its own regions. It may close those of its parent, and does not count with them.
 * Cost      cs_start and cs_stop read the counters: one read(2) per PMU with events in the string, and one for all events that
 *           the kernel counts itself. Hardware events need none if programs may read counters themselves (x86). The counters
 *           run from cs_open to cs_close, so an open region that is not started still makes context switches slower.
 *           A moment (cs_every_open) costs the counted thread an interrupt and a record in a ring, some microseconds. Taking it
 *           costs no system call, waiting for it one. A watch sleeps until there are moments.
 * Accuracy  Counts are raw and never scaled. The end of cs_start and the beginning of cs_stop are counted, too: an empty region
 *           shows their cost. If counters are shared, running_ns is less than enabled_ns.
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

/* Count of an event in all intervals since cs_open or cs_reset. Strings are valid until cs_close. */
typedef struct cs_count {
    const char *name;      /* event, as requested */
    const char *unit;      /* "ns", ...; "" for plain counts */
    const char *core_type; /* PMU of the cores it happened on, as "cpu_atom"; NULL if all cores are alike, or for events of
                              the kernel */
    uint64_t value;        /* count; undefined unless available is 1 */
    uint64_t enabled_ns;   /* nanoseconds during which it was enabled while the thread ran */
    uint64_t running_ns;   /* nanoseconds during which it counted */
    uint32_t available;    /* 0: this core type cannot count it, or it never had a counter; not the same as a count of 0 */
    uint32_t reserved;     /* 0 */
} cs_count;

/* Flags of cs_open. */
#define CS_INHERIT 1u /* also threads and processes created from then on; their times add up, and reading takes a read(2) */

/* Codes of failures. */
#define CS_ERROR_ARGUMENT (-1)   /* a null pointer, a string that is not UTF-8, unknown flags */
#define CS_ERROR_EVENTS (-2)     /* the event string is wrong, or names an event that this machine does not have */
#define CS_ERROR_PERMISSION (-3) /* not permitted: kernel.perf_event_paranoid */
#define CS_ERROR_REFUSED (-4)    /* the kernel cannot count it: no counter, too few, too many files, no such thread */
#define CS_ERROR_STATE (-5)      /* started twice, stopped twice, or in use by another thread at this moment */
#define CS_ERROR_SYSTEM (-6)     /* reading failed */
#define CS_ERROR_INTERNAL (-7)   /* defect of the library */

/*
 * Opens counters of the calling thread for events in the syntax of `steer stat -e` (see `steer events`), as
 * "instructions,cycles", "task_clock,page_faults:u", "cpu_core/event=0x2e,umask=0x41/". Returns 0 and a region in *out, or a
 * code and NULL there. Costs some microseconds per event, and the first time some milliseconds to detect the machine.
 */
int cs_open(const char *events, unsigned flags, cs_region **out);

/* Opens counters of another thread, by its TID as returned by gettid(2). Reading takes a read(2). */
int cs_open_thread(const char *events, int tid, unsigned flags, cs_region **out);

/* Begins an interval. Returns 0, or a code. */
int cs_start(cs_region *region);

/* Ends the interval and adds its counts to the sums. Returns 0, or a code. */
int cs_stop(cs_region *region);

/*
 * Writes the first n counts to out, in the order of the event string. On a machine with several core types an event of cores
 * has one count for each. An interval that has begun is counted up to now. Returns the number of all counts, which may be more
 * than n, or a code. With n = 0 it only returns the number, and out may be NULL.
 */
int cs_read(cs_region *region, cs_count *out, size_t n);

/* Sets the sums to 0; an interval that has begun continues from here. Returns 0, or a code. */
int cs_reset(cs_region *region);

/* Returns 1 if only user mode is counted, since more is not permitted; else 0; or a code. */
int cs_user_only(cs_region *region);

/* Closes the counters. NULL is allowed. */
void cs_close(cs_region *region);

/*
 * Samples every N events, with a callback.
 *
 *     static void tell(const cs_moment *moment, void *user) { ... moment->counts[1].value ... }
 *
 *     cs_every *every;
 *     if (cs_every_open("llc_misses,instructions", 100000, 0, &every) < 0)
 *         errx(1, "%s", cs_strerror());
 *     cs_every_start(every);
 *     ...
 *     cs_every_stop(every);
 *     cs_every_poll(every, 0, tell, NULL);
 *     cs_every_close(every);
 *
 * The kernel writes each moment to a ring of 64 KiB (some 500 moments) when it comes. They are taken from there on demand
 * (cs_every_poll), when a descriptor becomes readable (cs_every_fd), or by a thread of the library (cs_every_watch). Moments
 * that find the ring full are lost; their counts are in the next one.
 */
typedef struct cs_every cs_every;

typedef struct cs_moment {
    uint64_t at_ns;         /* time by CLOCK_MONOTONIC */
    int tid;                /* TID */
    unsigned n;             /* number of counts */
    const cs_count *counts; /* counts of each event of the string since the last moment (on this core type), or since
                               opening; valid, with its strings, during the call */
} cs_moment;

/* Called for each moment. It must not call a function of the same cs_every. */
typedef void (*cs_callback)(const cs_moment *moment, void *user);

#define CS_EVERY_FOREVER (-1) /* timeout of cs_every_poll */

/*
 * Opens counters of the calling thread that are read whenever the first event of the string has happened number times. Other
 * threads are not counted, not even those created later: each opens its own. flags is 0. Counting begins with cs_every_start.
 * Returns 0 and an object in *out, or a code and NULL.
 */
int cs_every_open(const char *events, uint64_t number, unsigned flags, cs_every **out);

/* Opens such counters of another thread, by its TID as returned by gettid(2). */
int cs_every_open_thread(const char *events, uint64_t number, int tid, unsigned flags, cs_every **out);

/* Starts or stops counting: one ioctl(2) per core type. May be called by any thread at any time. Returns 0, or a code. */
int cs_every_start(cs_every *every);
int cs_every_stop(cs_every *every);

/*
 * Returns a descriptor that becomes readable when there are moments, for poll(2) and similar calls. Take all moments before
 * waiting again. Do not close it.
 */
int cs_every_fd(cs_every *every);

/*
 * Waits until there are moments, or for timeout_ms milliseconds (CS_EVERY_FOREVER: without a limit). Then calls the callback
 * for each moment, from the calling thread. Once the counted thread has ended it does not wait. Returns the number of moments,
 * or a code.
 */
int cs_every_poll(cs_every *every, int timeout_ms, cs_callback callback, void *user);

/* Makes a thread of the library call the callback, soon after each moment, until cs_every_close. Returns 0, or a code. */
int cs_every_watch(cs_every *every, cs_callback callback, void *user);

/* Returns the number of moments lost since opening, or a code. */
int cs_every_lost(cs_every *every);

/* Passes the remaining moments to a watch, and closes the counters. NULL is allowed. Not to be called by the callback. */
void cs_every_close(cs_every *every);

/*
 * Virtual counters: values that no PMU counts (`steer events` lists them, `steer doctor` shows missing requirements).
 *
 *     cs_meters *meters;
 *     cs_value values[16];
 *     if (cs_meters_open("energy_j,temperature_c", &meters) < 0)
 *         errx(1, "%s", cs_strerror());
 *     work();
 *     int n = cs_meters_read(meters, values, 16);
 *
 * A read takes a file or two per value: some microseconds each.
 */
typedef struct cs_meters cs_meters;

typedef struct cs_value {
    const char *name;  /* virtual counter; valid until the next read or closing, as are all strings here */
    const char *unit;  /* "J", "B", ... */
    const char *place; /* subject: "package-0", a sensor, "machine"; "" for a CPU or a thread */
    int tid;           /* TID if the value is of a thread; else -1 */
    int cpu;           /* CPU if the value is of a CPU; else -1 */
    double value;      /* joules, seconds of pressure, bytes moved: since the last read, or opening; others: the present level */
} cs_value;

/* Opens virtual counters by name, separated by commas. Returns 0 and an object in *out, or a code and NULL. */
int cs_meters_open(const char *names, cs_meters **out);

/* Starts or stops observing a thread, for values by thread (cache occupancy, memory traffic, energy). */
int cs_meters_follow(cs_meters *meters, int tid);
int cs_meters_leave(cs_meters *meters, int tid);

/*
 * Reads all and writes the first n values to out; returns the number of all values, or a code. With n = 0 (out may then be
 * NULL) it reads as well: differences count from there. Virtual counters without a value at present are left out.
 */
int cs_meters_read(cs_meters *meters, cs_value *out, size_t n);

/* Closes the virtual counters, and removes the groups that were set up on the machine to observe threads. NULL is allowed. */
void cs_meters_close(cs_meters *meters);

/*
 * Pages: shared memory of a thread and the engine that steers it (`steer run`, `steer daemon`), for hints and advice.
 *
 *     cs_page *page;
 *     cs_advice advice;
 *     if (cs_page_open(&page) < 0)
 *         errx(1, "%s", cs_strerror());
 *     cs_page_tell(page, &(cs_told){.priority = 2, .workers = 8});
 *     ...
 *     if (cs_page_read(page, &advice) == 1)
 *         chunk = chunk_of(advice.speed * advice.share);
 *     cs_page_phase(page, CS_PHASE_SPINNING);
 *     cs_page_work(page, 1);
 *
 * Writing and reading are loads and stores, never a system call. An engine reads the hints each period, and its policy uses
 * them as far as it can (hsf, aarr). They gain a program nothing at another's cost. Without an engine hints are not read and
 * there is no advice. A page belongs to its thread, and is closed when that ends. Only one thread at a time may write; any may
 * read. After fork(2) the child's copies of pages have no effect: hints written to them are lost, and the child opens its own.
 * The first page takes the first free descriptor from 1000 to 1003; closing it withdraws the hints.
 */
typedef struct cs_page cs_page;

#define CS_PHASE_RUNNING 0u  /* the thread works */
#define CS_PHASE_SPINNING 1u /* it waits, and uses CPU time meanwhile: other threads gain more from the fast cores */
#define CS_PHASE_BLOCKED 2u  /* it waits in the kernel, or is about to */

/* Hint of a program about a thread. All zeros specify nothing. */
typedef struct cs_told {
    int priority;          /* -10 to 10, relative to the program's other threads; each step is a factor of 1.25 in weight */
    unsigned qos_permille; /* sufficient part of its full speed, alone on the fastest core type, in thousandths */
    unsigned phase;        /* CS_PHASE_... */
    unsigned workers;      /* number of threads that share its work */
} cs_told;

/* Advice of an engine to a thread. */
typedef struct cs_advice {
    uint32_t epoch;      /* changes whenever any other field does */
    uint32_t rank;       /* place of the thread's core type among those of the machine; 0 is the fastest */
    uint32_t core_types; /* number of core types */
    uint32_t reserved;   /* 0 */
    double sf;           /* predicted speed of the thread on the fastest type over that on the slowest; NAN: unknown */
    double speed;        /* speed of its core type over the slowest: for this thread by sf, or the published speed */
    double share;        /* its share of a CPU's time, at most 1, among the other steered threads */
    char core_type[32];  /* name of the core type */
} cs_advice;

/*
 * Opens the calling thread's page; a second call returns the same page. The first page of a process costs some 100
 * microseconds, those of other threads some 10. Returns 0 and a page in *out, or a code and NULL.
 */
int cs_page_open(cs_page **out);

/* Writes the whole hint, or only the phase. Return 0, or a code. */
int cs_page_tell(cs_page *page, const cs_told *hint);
int cs_page_phase(cs_page *page, unsigned phase);

/*
 * Adds units of work done; the unit is the thread's own, best a few milliseconds or less. From these, hsf:sf=work measures the
 * thread's gain from a fast core, and trials its speed. Returns 0, or a code.
 */
int cs_page_work(cs_page *page, uint64_t units);

/* Writes the advice of the engine to *out and returns 1; returns 0 if there is no engine, or a code. */
int cs_page_read(const cs_page *page, cs_advice *out);

/* Returns a number by a plain load: as long as it equals the epoch of the last advice, that is up to date. */
uint32_t cs_page_epoch(const cs_page *page);

/* Withdraws the hint. Nothing may be called on the page afterwards: it may be another thread's. NULL is allowed. */
void cs_page_close(cs_page *page);

/* Returns the message of the calling thread's last failure, in a sentence; "" before the first. Valid until its next failure. */
const char *cs_strerror(void);

/* Returns the version of the library, as "0.1.0". */
const char *cs_version(void);

#ifdef __cplusplus
}
#endif

#endif
