/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * What the counting of threads in the kernel and the session in user space both know.
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
/* Of speed-up factors: classes of CPUs that have a model, multiplexed sets, features of a model, steps of a feature. */
#define MAX_JUDGED 4
#define MAX_SETS 8
#define MAX_FEATURES 8
#define MAX_STEPS 64

/* Fractions: features have 20 bits behind the point, speed-up factors 16. */
#define FEATURE_BITS 20
#define FACTOR_BITS 16

/* No thread, no CPU. */
#define NONE 0xffffffff
/* Instead of a slot: this thread found none, and counts with all others that found none on its CPU. */
#define SHARED_SLOT 0xfffffffe

/* What a slot is. */
#define SLOT_FREE 0
#define SLOT_TAKEN 1
/* Its thread has ended, and nothing will be written any more until user space gives the slot back. */
#define SLOT_EXITED 2

/* Set once, before the programs are loaded. */
struct follow_settings {
	u32 slots; /* that threads can take; after them comes one per CPU, for those that stand */
	u32 kinds; /* of counts, by class of CPUs and set; beyond them, nothing is counted */
	u32 sets; /* multiplexed; class of a kind and set are quotient and remainder */
	u32 events; /* events that need a counter, at most in a set */
	u32 timed; /* the first of them knows how long it counted, in some set */
	u32 program; /* the thread that is followed from its `exec` on, in the first slot; 0 for none */
};

/* Changed by either side at any time. */
struct follow_control {
	u64 fresh; /* slots that were ever taken, without those given back; may grow beyond their number */
	u64 taken; /* slots taken so far, those given back too */
	u64 given; /* slots given back so far; written by user space */
	u64 missed; /* threads that found no slot, or were not noticed at all */
	u64 started; /* the program has begun */
	u64 generation; /* how often a thread got a slot, or had one no longer */
	u64 period_ns; /* sampling period: how often speed-up factors are computed */
};

/* From this value of a feature on, up to the next step. */
struct step {
	u64 least_q20;
	s64 add_q16;
};

/* One feature of a model: a ratio of two counters, and what it adds to the speed-up factor. */
struct feature {
	u8 above[MAX_SETS]; /* by set, the place of the numerator */
	u8 below[MAX_SETS]; /* and that of the denominator */
	u32 sets; /* those that have both: bits */
	u32 nr_steps;
	struct step steps[MAX_STEPS]; /* ascending */
};

/* The speed-up factor of a thread from what it counts on one class of CPUs: a sum of steps. */
struct model {
	s64 base_q16;
	u32 nr_features; /* 0 for no model */
	u32 unused;
	struct feature features[MAX_FEATURES];
};

/* What multiplexed sets have counted of a thread on one class of CPUs, within one phase. */
struct round {
	u64 began_q20; /* ratio of the first feature when it began; 0 for unknown */
	u32 seen; /* sets: bits */
	u32 unused;
	s64 adds[MAX_FEATURES];
};

/* What a thread is judged by. */
struct judgement {
	u64 forked_ns; /* of the thread that this is about */
	u64 judged_ns; /* when it was judged last; 0 for never */
	u32 kind; /* of counts that it is judged by */
	u32 unused;
	u64 counts[MAX_EVENTS]; /* what that had at the time */
	struct round rounds[MAX_JUDGED];
};

/* What one set counted for a thread on one class of CPUs. */
struct row {
	u64 time_ns; /* time it ran there while the set had its turn */
	u64 running_ns; /* of this, counters counted; 0 where none says so */
	u64 switches; /* how often it left its CPU */
	u64 migrations; /* how often it came from another one */
	u64 counts[MAX_EVENTS];
	u64 cpu; /* where last */
};

/* A thread that a CPU met lately. */
struct recent {
	u64 thread; /* its address in the kernel */
	u64 generation; /* as of then */
	u64 slot;
};

/* The thread that runs on a CPU, and where the CPU's counters stood when it came. */
struct cpu_state {
	u64 thread; /* the one that was seen to come last: its address in the kernel */
	u64 since_ns;
	u64 running_ns;
	u64 last[MAX_EVENTS];
	u32 wanted; /* of what is to be counted; written by user space */
	u32 kind; /* of what is counted now; from the number of kinds on, nothing is */
	u32 slot; /* NONE where no thread that is followed runs */
	u32 unused;
	struct row rest; /* what belongs to no thread */
	struct recent recent[MAX_RECENT];
};

/* A thread. */
struct slot {
	u64 changes; /* odd while it and its rows are being written */
	u64 forked_ns; /* when it was forked, or found */
	u64 at_ns; /* when its rows were written last */
	u64 renumbered_ns; /* when it took its process's number, having started a program; 0 if never */
	u64 exec_ns; /* when it started a program last; 0 if never */
	u32 state; /* SLOT_... */
	u32 tid; /* 0 before it has run */
	u32 tgid; /* its process */
	u32 parent; /* its parent; 0 for one that was there first */
	u32 cpu; /* where it ran last; NONE for nowhere yet */
	u32 named; /* how often its name changed */
	char name[16];
};
