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

/* No thread, no CPU. */
#define NONE 0xffffffff
/* Instead of a seat: this thread found none, and counts with all others that found none on its CPU. */
#define STANDING 0xfffffffe

/* What a seat is. */
#define SEAT_FREE 0
#define SEAT_TAKEN 1
/* Its thread has ended, and nothing will be written any more until user space gives the seat back. */
#define SEAT_LEFT 2

/* Set once, before the programs are loaded. */
struct follow_settings {
	u32 seats; /* that threads can take; after them comes one per CPU, for those that stand */
	u32 kinds; /* of counts, by class of CPUs and set; beyond them, nothing is counted */
	u32 events; /* events that need a counter, at most in a set */
	u32 timed; /* the first of them knows how long it counted, in some set */
	u32 program; /* the thread that is followed from its `exec` on, in the first seat; 0 for none */
};

/* Changed by either side at any time. */
struct follow_control {
	u64 fresh; /* seats that were ever taken, without those given back; may grow beyond their number */
	u64 taken; /* seats taken so far, those given back too */
	u64 given; /* seats given back so far; written by user space */
	u64 missed; /* threads that found no seat, or were not noticed at all */
	u64 started; /* the program has begun */
	u64 generation; /* how often somebody got a seat, or had one no longer */
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

/* Whom a CPU met lately. */
struct recent {
	u64 thread; /* its address in the kernel */
	u64 generation; /* as of then */
	u64 seat;
};

/* Who runs on a CPU, and where its counters stood when he came. */
struct here {
	u64 thread; /* who was seen to come last: its address in the kernel */
	u64 since_ns;
	u64 running_ns;
	u64 last[MAX_EVENTS];
	u32 wanted; /* of what is to be counted; written by user space */
	u32 kind; /* of what is counted now; from the number of kinds on, nothing is */
	u32 seat; /* NONE for nobody who is followed */
	u32 unused;
	struct row nobodys; /* what is nobody's goes there */
	struct recent recent[MAX_RECENT];
};

/* A thread. */
struct seat {
	u64 changes; /* odd while it and its rows are being written */
	u64 born_ns; /* when it was born, or found */
	u64 at_ns; /* when its rows were written last */
	u64 renumbered_ns; /* when it took its process's number, having started a program; 0 if never */
	u64 exec_ns; /* when it started a program last; 0 if never */
	u32 state; /* SEAT_... */
	u32 tid; /* 0 before it has run */
	u32 tgid; /* its process */
	u32 parent; /* its parent; 0 for one that was there first */
	u32 cpu; /* where it ran last; NONE for nowhere yet */
	u32 named; /* how often its name changed */
	char name[16];
};
