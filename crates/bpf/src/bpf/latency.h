/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * Constants and structures that the measurement of run-queue latency in the kernel shares with its reader in user space.
 *
 * build.rs makes Rust constants of the lines `#define NAME NUMBER`; the structures reach Rust through the skeleton.
 */
#pragma once

/*
 * Bounds of a histogram: latencies in units of 2^GRAIN_BITS ns. The first 2^SUB_BITS of them have a bucket each; after that
 * each octave has 2^SUB_BITS buckets. The last bucket contains all longer ones.
 */
#define GRAIN_BITS 7
#define SUB_BITS 3
#define VALUE_BITS 28
#define OCTAVES 26
#define SUBS 8
#define BUCKETS 208

/* Reason for which a thread waited. */
#define WOKEN 0
#define PREEMPTED 1
#define REASONS 2

/* Set once, before the programs are loaded. */
struct latency_settings {
	u32 ancestor; /* all descendants of this process are followed; 0 for none */
	u32 everyone; /* true if every thread is followed */
};

struct latency_control {
	u64 missed; /* threads without room for a row */
};

/* Identity of a thread, which is never reused. */
struct thread_key {
	u64 started_ns;
	u32 tid;
	u32 tgid;
};

/* Run-queue latencies of a thread. */
struct thread_waits {
	u64 since_ns; /* start of the present wait; 0 if it does not wait */
	u32 reason;
	u32 ended;
	u64 total_ns[REASONS];
	u64 longest_ns;
	char name[16]; /* name at its end */
	u32 buckets[REASONS][OCTAVES][SUBS];
};
