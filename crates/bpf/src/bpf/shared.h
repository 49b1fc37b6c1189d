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
#define MAX_COMMANDS 128
#define MAX_ROWS 16

/* The target that stands for every CPU of the topology. */
#define TARGET_ANYWHERE 0
/* No target, no program, nothing stolen. */
#define NONE 0xffffffff

/* Identifiers of dispatch queues: one per target, one per CPU. */
#define QUEUE_OF_TARGET 0x10000
#define QUEUE_OF_CPU 0x20000

/* Events of threads. */
#define EVENT_NEW 1
#define EVENT_EXEC 2
#define EVENT_EXIT 3
#define EVENT_WAKE 4
#define EVENT_SLEEP 5
#define EVENT_MIGRATE 6

/* What a command asks for. */
#define COMMAND_ATTACH 1
#define COMMAND_PLACE 2
#define COMMAND_COLLECT 3
#define COMMAND_GIVE_METRIC 4
#define COMMAND_DETACH 5

/* What the admission table compares. */
/* Values that user space gives, one period late at most. */
#define METRIC_GIVEN 0
/* Speed-up factors that the programs compute which count threads (judge.h). */
#define METRIC_SF 1

/* Set once, before the scheduler is loaded. */
struct settings {
	u64 slice_ns; /* time on a CPU before others get their turn */
	u32 nr_cpus; /* one more than the highest CPU of the kernel */
	u32 report_switches; /* report wakes, sleeps and migrations too */
	u32 drop_target; /* fault injection: threads of this target are lost; NONE in earnest */
	u32 unused;
};

/* One row of the admission table. */
struct admission_row {
	u64 least_q16; /* least value of the metric, with 16 bits behind the point */
	u32 target; /* where to */
	u32 unused;
};

/* Where threads go that come or wake between decisions. */
struct admission {
	u32 metric; /* METRIC_... */
	u32 nr_rows; /* 0 for no table */
	struct admission_row rows[MAX_ROWS];
};

/* Changed by user space at any time. */
struct control {
	u64 period_ns; /* sampling period */
	u32 admission; /* which of the two tables is valid */
	u32 nr_targets; /* one more than the highest target in use */
	u32 steal_above; /* idle CPUs of other targets take threads from queues longer than this; NONE for never */
	struct admission tables[2];
};

/* Any thread. */
struct thread {
	u64 vtime; /* time used, divided by weight, on the clock of its queue */
	u64 started_ns; /* when it got its CPU; 0 while it waits or sleeps */
	u64 slice_ns; /* its own slice; 0 for the usual one */
	u32 queue; /* whose clock vtime follows */
	u32 target; /* where it may run */
	u32 weight; /* 1024 is nice 0; 0 for its own */
	u32 cpu; /* where it last ran */
	u32 followed; /* belongs to a program of the workload */
	u32 program; /* which */
	u64 metric_q16; /* the metric of the admission table, where user space gives it; 0 for unknown */
};

/* What user space asks about a thread, and the answer. */
struct command {
	u32 tid; /* the thread */
	u32 kind; /* COMMAND_... */
	u32 target; /* to place: where to */
	u32 weight; /* to place: 1024 is nice 0; 0 leaves it */
	u64 slice_ns; /* to place: 0 leaves it */
	u32 program; /* to attach: the program of the workload */
	s32 result; /* 0, or an error number */
	u32 old_target; /* where it was */
	u32 cpu; /* where it last ran */
	u32 runnable; /* wants a CPU */
	s32 nice; /* its nice value */
	u32 on_target; /* it may run on a CPU of the target; a thread may be kept from migrating for a moment */
	u32 nr_allowed; /* CPUs that its own affinity leaves it */
	u64 metric_q16; /* to give: its metric; the answer is the factor that was computed in the kernel, 0 for none */
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
	u32 next; /* the one that is served first */
	u64 clock; /* virtual time of the CPU's own queue */
	u32 online; /* threads can run here */
	u32 own; /* a thread may wait in the CPU's own queue */
	u32 targets[MAX_CPU_QUEUES]; /* their targets */
};

/* A record of the ring. */
struct event {
	u64 at_ns; /* monotonic clock */
	u32 kind; /* EVENT_... */
	u32 tid; /* the thread */
	u32 tgid; /* of which process */
	u32 program; /* of the workload */
	u32 from; /* EVENT_MIGRATE: CPU; EVENT_EXEC: its number before */
	u32 to; /* EVENT_MIGRATE: CPU; EVENT_NEW: CPU */
};

/* Written by the kernel, read by user space. */
struct counters {
	u64 lost; /* records that did not fit into the ring */
	u64 followed; /* threads that are followed and live */
	u64 stolen; /* threads that ran outside their target for want of others */
	u64 moved; /* threads that changed queues with their target */
	u32 exit_kind; /* why the scheduler ended; 0 while it runs */
	u32 unused;
};
