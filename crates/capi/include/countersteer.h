/*
 * libcountersteer: counters around a region of code, and pages that threads share with what steers them.
 *
 *     cs_region *region;
 *     if (cs_open("task_clock,page_faults", 0, &region) < 0)
 *         errx(1, "%s", cs_strerror());
 *     cs_start(region);
 *     ...
 *     cs_stop(region);
 *
 * Errors    Functions that return int return a code below 0 when they fail; cs_strerror() then says what failed and how
 *           to fix it.
 * Threads   A region counts the thread that opened it. Different regions may be used at the same time by different threads.
 *           One region may be used by any thread, but by one at a time: a second one gets CS_ERROR_STATE. Nothing may be
 *           called on a region while or after it is closed. Signal handlers must not call the library.
 * Fork      A child process opens its own regions. It may close those of its parent, and does not count with them.
 * Cost      cs_start and cs_stop read the counters: one read(2) per PMU with events in the string, and one for all that the
 *           kernel counts itself; none for hardware events where programs may read counters themselves (x86). The counters
 *           run from cs_open to cs_close, so a region that is open and not started costs what it adds to a context switch.
 *           A moment (cs_every_open) costs the counted thread an interrupt and a note in a ring, some microseconds; taking it
 *           costs no system call, waiting for it one. A watch sleeps until there are moments.
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

/* What an event counted in all intervals since cs_open or cs_reset. Strings are valid until cs_close. */
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
#define CS_INHERIT 1u /* also threads and processes created from then on; their times add up, and reading takes a read(2) */

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

/* Begins an interval. Returns 0, or a code. */
int cs_start(cs_region *region);

/* Ends the interval and adds what it counted to the sums. Returns 0, or a code. */
int cs_stop(cs_region *region);

/*
 * Writes the first n counts to out, in the order of the event string; on a machine with several types of cores an event of
 * cores has one for each. An interval that has begun is counted up to now. Returns how many counts there are, which may be more
 * than n (n = 0 asks for that alone, and out may then be NULL), or a code.
 */
int cs_read(cs_region *region, cs_count *out, size_t n);

/* Sets the sums to 0; an interval that has begun goes on from here. Returns 0, or a code. */
int cs_reset(cs_region *region);

/* 1 if only user mode is counted, since more is not permitted; else 0; or a code. */
int cs_user_only(cs_region *region);

/* Closes the counters. NULL is allowed. */
void cs_close(cs_region *region);

/*
 * A reading each so many events, with a callback.
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
 * The kernel notes each moment when it comes, in a ring of 64 KiB (some 500 moments). They are taken from there on demand
 * (cs_every_poll), when a descriptor becomes readable (cs_every_fd), or by a thread of the library (cs_every_watch). Moments
 * that find the ring full are lost; what they would have counted is in the next one.
 */
typedef struct cs_every cs_every;

typedef struct cs_moment {
    uint64_t at_ns;         /* when, by CLOCK_MONOTONIC */
    int tid;                /* of which thread */
    unsigned n;             /* how many counts there are */
    const cs_count *counts; /* what each event of the string counted since the last moment (on this type of cores), or since
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

/* The same for another thread, by its number as gettid(2) gives it. */
int cs_every_open_thread(const char *events, uint64_t number, int tid, unsigned flags, cs_every **out);

/* Counting begins, or ends: one ioctl(2) per type of cores. May be called by any thread at any time. Returns 0, or a code. */
int cs_every_start(cs_every *every);
int cs_every_stop(cs_every *every);

/* A descriptor that becomes readable when moments are there, for poll(2) and its kin; take all of them before waiting again.
   Not to be closed. */
int cs_every_fd(cs_every *every);

/*
 * Waits until there are moments, or that many milliseconds (CS_EVERY_FOREVER: as long as it takes), then calls the callback
 * for each that is there, from the calling thread. Once the counted thread has ended it does not wait. Returns how many there
 * were, or a code.
 */
int cs_every_poll(cs_every *every, int timeout_ms, cs_callback callback, void *user);

/* Lets a thread of the library call the callback, soon after each moment, until cs_every_close. Returns 0, or a code. */
int cs_every_watch(cs_every *every, cs_callback callback, void *user);

/* How many moments were lost since opening, or a code. */
int cs_every_lost(cs_every *every);

/* Hands on what there is to a watch, and closes. NULL is allowed. Not to be called by the callback. */
void cs_every_close(cs_every *every);

/*
 * Virtual counters: what no PMU counts (`steer events` lists them, `steer doctor` tells what is missing).
 *
 *     cs_meters *meters;
 *     cs_value values[16];
 *     if (cs_meters_open("energy_j,temperature_c", &meters) < 0)
 *         errx(1, "%s", cs_strerror());
 *     work();
 *     int n = cs_meters_read(meters, values, 16);
 *
 * A reading reads a file or two per value: some microseconds each.
 */
typedef struct cs_meters cs_meters;

typedef struct cs_value {
    const char *name;  /* the virtual counter; valid until the next reading or closing, as are all strings here */
    const char *unit;  /* "J", "B", ... */
    const char *place; /* what it is about: "package-0", a sensor, "machine"; "" for a CPU or a thread */
    int tid;           /* the thread, where it is about one; else -1 */
    int cpu;           /* the CPU, where it is about one; else -1 */
    double value;      /* joules, seconds of pressure, bytes moved: since the last reading, or opening; others: the level now */
} cs_value;

/* Opens virtual counters by name, separated by commas. Returns 0 and an object in *out, or a code and NULL. */
int cs_meters_open(const char *names, cs_meters **out);

/* A thread is to be observed, or no longer, where values are by thread (cache occupancy, memory traffic, energy). */
int cs_meters_follow(cs_meters *meters, int tid);
int cs_meters_leave(cs_meters *meters, int tid);

/* Reads all and writes the first n values to out; returns how many there are, or a code. With n = 0 (out may then be NULL) it
   reads as well: differences count from there. What has nothing to say at the moment is left out. */
int cs_meters_read(cs_meters *meters, cs_value *out, size_t n);

/* Closes, and removes what was set up on the machine to observe threads. NULL is allowed. */
void cs_meters_close(cs_meters *meters);

/*
 * Pages: what a thread and the engine that steers it (`steer run`, `steer daemon`) say to each other.
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
 * Telling and reading are loads and stores, never a system call. Hints are read by an engine each period, and
 * its policy makes of them what it can (hsf, aarr). They gain a program nothing at another's cost. Without an engine nothing
 * listens and nothing is said. A page is its thread's, and closed when that ends. One thread at a time may tell; any may read.
 * After fork(2) the child's copies of pages are dead: what is written to them is lost, and it opens its own. The first page takes
 * the first free descriptor from 1000 to 1003; closing it withdraws the hints.
 */
typedef struct cs_page cs_page;

#define CS_PHASE_RUNNING 0u  /* the thread works */
#define CS_PHASE_SPINNING 1u /* it waits, and uses up CPU time meanwhile: others deserve the fast cores more */
#define CS_PHASE_BLOCKED 2u  /* it waits in the kernel, or is about to */

/* What a program tells about a thread. All zeros say nothing. */
typedef struct cs_told {
    int priority;          /* -10 to 10, beside the program's other threads; each step weighs 1.25 times as much */
    unsigned qos_permille; /* what part of its full speed, alone on the fastest core type, is enough, in thousandths */
    unsigned phase;        /* CS_PHASE_... */
    unsigned workers;      /* threads among which it shares out its work */
} cs_told;

/* What an engine says to a thread. */
typedef struct cs_advice {
    uint32_t epoch;      /* changes whenever any of the rest does */
    uint32_t rank;       /* place of the thread's core type among those of the machine; 0 is the fastest */
    uint32_t core_types; /* how many there are */
    uint32_t reserved;   /* 0 */
    double sf;           /* the thread's speed on the fastest type over that on the slowest, as predicted; NAN: unknown */
    double speed;        /* how fast its core type is for it, over the slowest: by sf, or by what these cores can in general */
    double share;        /* what it gets of a CPU's time, at most 1, beside the other threads that are steered */
    char core_type[32];  /* the type's name */
} cs_advice;

/* Gives the calling thread's page; a second call gives the same. The first page of a process costs some 100 microseconds, those
   of other threads some 10. Returns 0 and a page in *out, or a code and NULL. */
int cs_page_open(cs_page **out);

/* Tells everything, or only the phase. Return 0, or a code. */
int cs_page_tell(cs_page *page, const cs_told *hint);
int cs_page_phase(cs_page *page, unsigned phase);

/* Tells that so many more units of work are done; a unit is whatever the thread makes of it, best a few milliseconds or less. By
   this hsf:sf=work finds out what the thread gains by a fast core, and trials measure it. Returns 0, or a code. */
int cs_page_work(cs_page *page, uint64_t units);

/* Writes what the engine says to *out and returns 1; returns 0 where there is no engine, or a code. */
int cs_page_read(const cs_page *page, cs_advice *out);

/* A plain load: as long as it is the epoch of the last advice, nothing is new. */
uint32_t cs_page_epoch(const cs_page *page);

/* Withdraws the hint. Nothing may be called on the page afterwards: it may be another thread's. NULL is allowed. */
void cs_page_close(cs_page *page);

/* What the calling thread's last failure was, in a sentence; "" before the first. Valid until its next failure. */
const char *cs_strerror(void);

/* The library's version, as "0.1.0". */
const char *cs_version(void);

#ifdef __cplusplus
}
#endif

#endif
