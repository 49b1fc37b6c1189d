/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * What the roll of threads in the kernel and its reader in user space both know.
 *
 * build.rs makes Rust constants of the lines `#define NAME NUMBER`; the structures reach Rust through the skeleton.
 */
#pragma once

/* Bytes of the ring; its reader is woken when half of them wait. */
#define RING_BYTES 524288

/* What befalls a thread. */
#define ROLL_BORN 0
#define ROLL_STARTS 1
#define ROLL_ENDS 2

/* A thread was born, starts a program (with the number of its process from then on), or begins to end. */
struct roll_event {
	u64 at_ns;
	u32 what; /* ROLL_... */
	u32 pid; /* its process */
	u32 tid;
	u32 parent; /* who gave birth to it */
	char name[16]; /* of the program that it starts */
};

/* Where a thread is put down. */
struct seat {
	u64 thread; /* its address; 0 for none */
	u64 family; /* its number */
};

/* A thread that was there first, and all that came of it. */
struct family {
	u64 number; /* of the one that has this place now; never 0 */
	u64 gone_ns; /* what those have run that are no more, less what others had run when they entered */
	u64 ran_ns; /* all of them, when that was last added up */
	u64 leaving; /* threads that were just ending then, and went on running for that */
	u64 begun; /* moves of its threads from one account to another, and those that have ended */
	u64 ended;
	u64 moves; /* that had ended when adding up began */
	u32 met; /* its first thread has a seat, and is no more known by its number alone */
	u32 whole; /* nobody was moved while it was added up */
};

/* Changed at any time. */
struct roll_control {
	u64 lost; /* events for which there was no room in the ring, and threads for which there was no seat */
	u32 fresh; /* seats that were ever taken */
	u32 families; /* places of families that were ever taken; written by user space */
};

/* Where the fields of a thread are in this kernel; set once, before the programs are loaded. */
struct roll_settings {
	u32 pid;
	u32 tgid;
	u32 flags;
	u32 state;
	u32 on_cpu;
	u32 ran;
	u32 seats; /* that there are */
};
