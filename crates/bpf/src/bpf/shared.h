/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * Constants and structures that the scheduler in the kernel shares with the engine in user space.
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

/* Target that represents every CPU of the topology. */
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
/* The thread left its CPU. */
#define EVENT_SWITCH 7

/* Kinds of commands. */
#define COMMAND_ATTACH 1
#define COMMAND_PLACE 2
#define COMMAND_COLLECT 3
#define COMMAND_GIVE_METRIC 4
#define COMMAND_DETACH 5

/* Metrics that the admission table compares. */
/* Values that user space provides, one period late at most. */
#define METRIC_GIVEN 0
/* Speed-up factors that the counting programs compute (judge.h). */
#define METRIC_SF 1

/* Set once, before the scheduler is loaded. */
struct settings {
	u64 slice_ns; /* time slice: time on a CPU before other threads may run */
	u32 nr_cpus; /* one more than the highest CPU of the kernel */
	u32 report_switches; /* report wakeups, sleeps and migrations too */
	u32 drop_target; /* fault injection: threads of this target are lost; NONE in production */
	u32 unused;
};

/* Row of the admission table. */
struct admission_row {
	u64 least_q16; /* least value of the metric, in Q16 fixed point */
	u32 target; /* target of the threads */
	u32 unused;
};

/* Targets for threads that start or wake between decisions. */
struct admission {
	u32 metric; /* METRIC_... */
	u32 nr_rows; /* 0 for no table */
	struct admission_row rows[MAX_ROWS];
};

/* Changed by user space at any time. */
struct control {
	u64 period_ns; /* sampling period */
	u32 admission; /* index of the valid one of the two tables */
	u32 nr_targets; /* one more than the highest target in use */
	u32 steal_above; /* queue depth above which idle CPUs of other targets take threads; NONE for never */
	u32 report_spans; /* report each time that a thread leaves its CPU */
	struct admission tables[2];
};

/* State of any thread. */
struct thread {
	u64 vtime; /* time used, divided by weight, on the clock of its queue */
	u64 started_ns; /* start of its time slice; 0 while it waits or sleeps */
	u64 came_ns; /* time when it got its CPU */
	u64 slice_ns; /* its own time slice; 0 for the usual one */
	u32 queue; /* queue whose clock vtime follows */
	u32 target; /* target where it may run */
	u32 weight; /* 1024 is nice 0; 0 for its own */
	u32 cpu; /* last CPU */
	u32 followed; /* true if it belongs to a program of the workload */
	u32 program; /* that program */
	u64 metric_q16; /* metric of the admission table, if user space provides it; 0 if unknown */
};

/* Command of user space for a thread, and the answer. */
struct command {
	u32 tid; /* TID */
	u32 kind; /* COMMAND_... */
	u32 target; /* to place: the target */
	u32 weight; /* to place: 1024 is nice 0; 0 leaves it */
	u64 slice_ns; /* to place: 0 leaves it */
	u32 program; /* to attach: the program of the workload */
	s32 result; /* 0, or an error number */
	u32 old_target; /* its target before */
	u32 cpu; /* last CPU */
	u32 runnable; /* true if it wants a CPU */
	s32 nice; /* its nice value */
	u32 on_target; /* true if it may run on a CPU of the target; a thread may be kept from migrating for a moment */
	u32 nr_allowed; /* number of CPUs that its own affinity mask allows */
	u64 metric_q16; /* to give: its metric; the answer is the factor that was computed in the kernel, 0 for none */
};

/* Definition of a target: CPUs by the kernel's numbers. */
struct definition {
	u32 target; /* number of the target */
	s32 result; /* 0, or an error number */
	u64 cpus[CPU_WORDS]; /* bit mask */
};

/* Queues that a CPU serves besides its own. */
struct served {
	u32 count; /* number of queues */
	u32 next; /* queue that is served first */
	u64 clock; /* virtual time of the CPU's own queue */
	u32 online; /* true if threads can run here */
	u32 own; /* true if a thread may wait in the CPU's own queue */
	u32 targets[MAX_CPU_QUEUES]; /* their targets */
};

/* Record of the ring. */
struct event {
	u64 at_ns; /* monotonic clock */
	u32 kind; /* EVENT_... */
	u32 tid; /* TID */
	u32 tgid; /* process */
	u32 program; /* program of the workload */
	u32 from; /* EVENT_MIGRATE: CPU; EVENT_EXEC: its TID before */
	u32 to; /* EVENT_MIGRATE: CPU; EVENT_NEW: CPU; EVENT_SWITCH: CPU */
	u64 ran_ns; /* EVENT_SWITCH: time for which it had its CPU */
};

/* Written by the kernel, read by user space. */
struct counters {
	u64 lost; /* records that did not fit into the ring */
	u64 followed; /* followed threads that are alive */
	u64 stolen; /* threads that ran outside their target because a CPU had no other thread */
	u64 moved; /* threads that changed queues with their target */
	u32 exit_kind; /* reason for the end of the scheduler; 0 while it runs */
	u32 unused;
};
