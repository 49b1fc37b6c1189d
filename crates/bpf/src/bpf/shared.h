/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * What the scheduler in the kernel and the engine in user space both know.
 *
 * build.rs makes Rust constants of the lines `#define NAME NUMBER`; the structures reach Rust through the skeleton.
 */
#pragma once

#define MAX_CPUS 1024
#define CPU_WORDS 16
#define MAX_TARGETS 1024
#define MAX_CPU_QUEUES 32
#define MAX_TYPES 4
#define MAX_SETS 8
#define MAX_EVENTS 8
#define MAX_COMMANDS 128
#define MAX_ROWS 16
#define MAX_FEATURES 8
#define MAX_STEPS 64

/* The target that stands for every CPU of the topology. */
#define TARGET_ANYWHERE 0
/* No target, no program, nothing stolen. */
#define NONE 0xffffffff

/* Identifiers of dispatch queues: one per target, one per CPU. */
#define QUEUE_OF_TARGET 0x10000
#define QUEUE_OF_CPU 0x20000

/* What befell a thread. */
#define TOLD_NEW 1
#define TOLD_EXEC 2
#define TOLD_EXIT 3
#define TOLD_WAKE 4
#define TOLD_SLEEP 5
#define TOLD_MIGRATE 6
#define TOLD_PHASE 7
/* Not an event: what one set counted on one core type until the thread ended. */
#define TOLD_SUM 8

/* What a command asks for. */
#define COMMAND_ADMIT 1
#define COMMAND_PLACE 2
#define COMMAND_COLLECT 3
#define COMMAND_JUDGE 4
#define COMMAND_DISMISS 5

/* What the admission table compares. */
/* Values that user space gives, one period late at most. */
#define METRIC_GIVEN 0
/* Speed-up factors that the kernel computes by `models`. */
#define METRIC_SF 1

/* Fractions: features have 20 bits behind the point, speed-up factors and metrics 16. */
#define FEATURE_BITS 20
#define FACTOR_BITS 16

/* Set once, before the scheduler is loaded. */
struct settings {
	u64 slice_ns; /* time on a CPU before others get their turn */
	u32 nr_cpus; /* one more than the highest CPU of the kernel */
	u32 tell_switches; /* tell wakes, sleeps and moves too */
	u32 drop_target; /* fault injection: threads of this target are lost; NONE in earnest */
	u32 unused;
	u8 core_type[MAX_CPUS]; /* by CPU of the kernel */
};

/* One row of the admission table. */
struct row {
	u64 least_q16; /* least value of the metric */
	u32 target; /* where to */
	u32 unused;
};

/* Where threads go that come or wake between decisions. */
struct admission {
	u32 metric; /* METRIC_... */
	u32 nr_rows; /* 0 for no table */
	struct row rows[MAX_ROWS];
};

/* Changed by user space at any time. */
struct control {
	u64 period_ns; /* sampling period */
	u32 set; /* the set of events that counts now */
	u32 admission; /* which of the two tables is valid */
	u32 nr_targets; /* one more than the highest target in use */
	u32 steal_above; /* idle CPUs of other targets take threads from queues longer than this; NONE for never */
	u32 sets; /* those that take turns, which models are about: bits */
	u32 unused;
	u32 slots[MAX_TYPES * MAX_SETS]; /* by core type and set, which slots have counters: bits */
	struct admission tables[2];
};

/* From this value of a feature on, up to the next step. */
struct step {
	u64 least_q20;
	s64 add_q16;
};

/* One feature of a model: a ratio of two counters, and what it adds to the speed-up factor. */
struct feature {
	u8 above[MAX_SETS]; /* by set, the slot of the numerator */
	u8 below[MAX_SETS]; /* and that of the denominator */
	u32 sets; /* those that have both: bits */
	u32 nr_steps;
	struct step steps[MAX_STEPS]; /* ascending */
};

/* The speed-up factor of a thread from what it counts on one core type: a sum of steps. */
struct model {
	s64 base_q16;
	u32 nr_features; /* 0 for no model */
	u32 unused;
	struct feature features[MAX_FEATURES];
};

/* What one set counted for a thread on one core type. */
struct sum {
	u64 time_ns; /* time the thread ran while the set's turn was on */
	u64 enabled_ns; /* of this, the set was switched on */
	u64 running_ns; /* of this, it was on the counters */
	u64 counts[MAX_EVENTS];
};

/* What a thread was like when its phase began. */
struct phase {
	u64 began_q20; /* ratio of the first feature; 0 for unknown */
	u32 doubts; /* judgements in a row that do not fit */
	u32 unused;
};

/*
 * What sets that take turns have told of a thread on a core type, within one phase. Once each of them has, it is whole, and the
 * speed-up factor is what its features add.
 */
struct round {
	u64 began_q20; /* ratio of the first feature when it began; 0 for unknown */
	u32 seen; /* sets: bits */
	u32 unused;
	s64 adds[MAX_FEATURES];
};

/* A thread that is followed. */
struct ledger {
	u64 changes; /* odd while the sums are being written */
	u32 program; /* of the workload */
	u32 set; /* which set the readings below are of */
	u32 cpu; /* where they were taken */
	u32 judged_row; /* which of the sums the one below was */
	u64 since_ns; /* when they were taken; 0 while the thread does not run */
	u64 readings[MAX_EVENTS * 3]; /* counter, enabled, running */
	u64 metric_q16; /* the metric of the admission table; 0 for unknown */
	u64 judged_ns; /* when it was last computed */
	struct phase phases[MAX_TYPES]; /* by core type, the one that it is in */
	struct round rounds[MAX_TYPES];
	struct sum judged; /* the sum at that time */
	struct sum sums[MAX_TYPES * MAX_SETS];
};

/* Any thread. */
struct thread {
	u64 vtime; /* time used, divided by weight, on the clock of its queue */
	u64 started_ns; /* when it got its CPU; 0 while it waits or sleeps */
	u64 slice_ns; /* its own slice; 0 for everybody's */
	u32 queue; /* whose clock vtime follows */
	u32 target; /* where it may run */
	u32 weight; /* 1024 is nice 0; 0 for its own */
	u32 cpu; /* where it last ran */
	u32 followed; /* has a ledger */
	u32 unused;
};

/* What user space asks about a thread, and the answer. */
struct command {
	u32 tid; /* who */
	u32 kind; /* COMMAND_... */
	u32 target; /* to place: where to */
	u32 weight; /* to place: 1024 is nice 0; 0 leaves it */
	u64 slice_ns; /* to place: 0 leaves it */
	u32 program; /* to admit: whose */
	s32 result; /* 0, or an error number */
	u32 old_target; /* where it was */
	u32 cpu; /* where it last ran */
	u32 runnable; /* wants a CPU */
	s32 nice; /* its nice value */
	u32 tgid; /* its process */
	u32 on_target; /* its own affinity leaves it a CPU of the target */
	u32 nr_allowed; /* CPUs that its own affinity leaves it */
	u32 unused;
	u64 changes; /* to collect: what is known already, and need not be copied */
	u64 metric_q16; /* to judge: its metric; of the rest, what it is */
};

/* A target: CPUs by the kernel's numbers. */
struct definition {
	u32 target; /* which */
	s32 result; /* 0, or an error number */
	u64 cpus[CPU_WORDS]; /* bits */
};

/* The queues that a CPU serves besides its own. */
struct served {
	u32 count; /* how many */
	u32 next; /* whose turn it is */
	u64 clock; /* virtual time of the CPU's own queue */
	u32 online; /* threads can run here */
	u32 own; /* somebody may wait in the CPU's own queue */
	u32 targets[MAX_CPU_QUEUES]; /* whose queues */
};

/* A record of the ring. */
struct told {
	u64 at_ns; /* monotonic clock */
	u32 kind; /* TOLD_... */
	u32 tid; /* who */
	u32 tgid; /* of which process */
	u32 program; /* of the workload */
	u32 from; /* TOLD_MIGRATE: CPU; TOLD_EXEC: its number before; TOLD_SUM: row of the sums */
	u32 to; /* TOLD_MIGRATE: CPU; TOLD_NEW: CPU; TOLD_SUM: last CPU */
};

/* The record of TOLD_SUM. */
struct told_sum {
	struct told head;
	struct sum sum;
};

/* Written by the kernel, read by user space. */
struct counters {
	u64 lost; /* records that did not fit into the ring */
	u64 followed; /* threads that are followed and live */
	u64 stolen; /* threads that ran outside their target for want of others */
	u64 moved; /* threads that changed queues with their target */
	u64 unread; /* counters that could not be read */
	u64 foreign; /* readings left out because they were another CPU's */
	u64 phases; /* phases that began */
	u64 exit_code; /* why the scheduler ended, as a number */
	u32 exit_kind; /* 0 while it runs */
	u32 offline; /* CPUs that went offline */
};
