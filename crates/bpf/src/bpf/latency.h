/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * What the measuring of waits in the kernel and its reader in user space both know.
 *
 * build.rs makes Rust constants of the lines `#define NAME NUMBER`; the structures reach Rust through the skeleton.
 */
#pragma once

/*
 * Bounds of a histogram: waits in units of 2^GRAIN_BITS ns; the first 2^SUB_BITS of them have a bucket each, after that each octave
 * has 2^SUB_BITS buckets. The last bucket takes what is longer.
 */
#define GRAIN_BITS 7
#define SUB_BITS 3
#define VALUE_BITS 28
#define OCTAVES 26
#define SUBS 8
#define BUCKETS 208

/* Why a thread waited. */
#define WOKEN 0
#define PREEMPTED 1
#define REASONS 2

/* Set once, before the programs are loaded. */
struct latency_settings {
	u32 ancestor; /* this process's children are followed, and all of their descendants; 0 for none */
	u32 everyone; /* every thread is */
};

struct latency_control {
	u64 missed; /* threads that found no room */
};

/* What no other thread has, ever. */
struct thread_key {
	u64 started_ns;
	u32 tid;
	u32 tgid;
};

/* A thread's waits. */
struct thread_waits {
	u64 since_ns; /* it waits since then; 0 if it does not */
	u32 reason;
	u32 ended;
	u64 total_ns[REASONS];
	u64 longest_ns;
	char name[16]; /* at its end */
	u32 buckets[REASONS][OCTAVES][SUBS];
};
