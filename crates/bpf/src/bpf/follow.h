/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * Constants and structures that the counting of threads in the kernel shares with the session in user space.
 *
 * build.rs makes Rust constants of the lines `#define NAME NUMBER`; the structures reach Rust through the skeleton.
 */
#pragma once

#define MAX_EVENTS 8
/* Kinds of counts: those of one set of events on one class of CPUs. */
#define MAX_KINDS 128
#define MAX_ADOPTED 256
/* A power of two. */
#define MAX_RECENT 64
/* Limits for speed-up factors: classes of CPUs with a model, multiplexed sets, features of a model, steps of a feature. */
#define MAX_JUDGED 4
#define MAX_SETS 8
#define MAX_FEATURES 8
#define MAX_STEPS 64

/* Fixed-point numbers: features are Q20, speed-up factors Q16. */
#define FEATURE_BITS 20
#define FACTOR_BITS 16

/* No thread, no CPU. */
#define NONE 0xffffffff
/* Instead of a slot: this thread found none, and counts with all others without a slot on its CPU. */
#define SHARED_SLOT 0xfffffffe

/* State of a slot. */
#define SLOT_FREE 0
#define SLOT_TAKEN 1
/* Its thread has ended, and nothing will be written any more until user space returns the slot. */
#define SLOT_EXITED 2

/* Set once, before the programs are loaded. */
struct follow_settings {
	u32 slots; /* number that threads can take; after them comes one per CPU, for the others */
	u32 kinds; /* of counts, by class of CPUs and set; beyond them, nothing is counted */
	u32 sets; /* multiplexed; class of a kind and set are quotient and remainder */
	u32 events; /* largest number of events in a set that need a counter */
	u32 timed; /* in some set, the first of them measures how long it counted */
	u32 program; /* thread that is followed from its `exec` on, in the first slot; 0 for none */
};

/* Changed by either side at any time. */
struct follow_control {
	u64 fresh; /* slots that were ever taken, without those returned; may exceed their number */
	u64 taken; /* slots taken so far, including returned ones */
	u64 given; /* slots returned so far; written by user space */
	u64 missed; /* threads without a slot, or that were not noticed at all */
	u64 started; /* true once the program has begun */
	u64 generation; /* number of times that a thread got or lost a slot */
	u64 period_ns; /* sampling period: interval at which speed-up factors are computed */
};

/* Addition from this value of a feature on, up to the next step. */
struct step {
	u64 least_q20;
	s64 add_q16;
};

/* Feature of a model: a ratio of two counters, and its contribution to the speed-up factor. */
struct feature {
	u8 above[MAX_SETS]; /* by set, the place of the numerator */
	u8 below[MAX_SETS]; /* by set, the place of the denominator */
	u32 sets; /* bit mask of the sets that have both */
	u32 nr_steps;
	struct step steps[MAX_STEPS]; /* ascending */
};

/* Speed-up factor of a thread from its counts on one class of CPUs: a sum of steps. */
struct model {
	s64 base_q16;
	u32 nr_features; /* 0 for no model */
	u32 unused;
	struct feature features[MAX_FEATURES];
};

/* Counts of multiplexed sets for a thread on one class of CPUs, within one phase. */
struct round {
	u64 mean_q20; /* running mean of the first feature's ratio in its phase; 0 if unknown */
	u32 seen; /* bit mask of sets */
	u32 unused;
	s64 adds[MAX_FEATURES];
};

/* State of the judgement of a thread. */
struct judgement {
	u64 forked_ns; /* fork time of the thread that this is about */
	u64 judged_ns; /* time of the last judgement; 0 for never */
	u32 kind; /* kind of counts by which it is judged */
	u32 unused;
	u64 counts[MAX_EVENTS]; /* counts of that kind at the time */
	struct round rounds[MAX_JUDGED];
};

/* Counts of one set for a thread on one class of CPUs. */
struct row {
	u64 time_ns; /* time it ran there while the set was switched on */
	u64 running_ns; /* part of it in which counters counted; 0 if none measures it */
	u64 switches; /* number of times that it left its CPU */
	u64 migrations; /* number of times that it came from another CPU */
	u64 counts[MAX_EVENTS];
	u64 cpu; /* last CPU */
};

/* Thread that a CPU met recently. */
struct recent {
	u64 thread; /* its address in the kernel */
	u64 generation; /* generation at that time */
	u64 slot;
};

/* Thread that runs on a CPU, and values of the CPU's counters when it came. */
struct cpu_state {
	u64 thread; /* last thread that was seen to come: its address in the kernel */
	u64 since_ns;
	u64 running_ns;
	u64 last[MAX_EVENTS];
	u32 wanted; /* kind of counts to be counted; written by user space */
	u32 kind; /* kind of counts counted now; from the number of kinds on, none is */
	u32 slot; /* NONE if no followed thread runs */
	u32 unused;
	struct row rest; /* counts that belong to no thread */
	struct recent recent[MAX_RECENT];
};

/* Slot of a thread. */
struct slot {
	u64 changes; /* odd while it and its rows are being written */
	u64 forked_ns; /* time when it was forked, or found */
	u64 at_ns; /* time when its rows were last written */
	u64 renumbered_ns; /* time when it took its process's TID, by an exec; 0 if never */
	u64 exec_ns; /* time of its last exec; 0 if never */
	u32 state; /* SLOT_... */
	u32 tid; /* 0 before it has run */
	u32 tgid; /* its process */
	u32 parent; /* its parent; 0 for an initial thread */
	u32 cpu; /* last CPU; NONE before it has run */
	u32 named; /* number of changes of its name */
	char name[16];
};
