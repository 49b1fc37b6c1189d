// SPDX-License-Identifier: GPL-2.0
/*
 * Gives seats to threads that run already. It is apart from the programs that follow them, because it needs the kernel's type
 * information: only who attaches to what runs waits for that to be read. Every name is looked for among all that there are, so it
 * names two functions and no structure.
 */
#include "kernel.h"
#include "follow.h"
#include "seats.h"

char LICENSE[] SEC("license") = "GPL";

/* Threads by number, and the seats that they are to get; in the end NONE if the seat is not needed. */
struct adoption {
	u32 tid;
	u32 tgid;
	u32 seat;
} adoptions[MAX_ADOPTED];
u32 nr_adoptions;

static __always_inline bool adopt_one(const struct adoption *a)
{
	struct task_struct *p = bpf_task_from_pid(a->tid);
	struct seat *seat;
	u64 thread = (u64)p;
	bool done = false;

	if (!p)
		return false;
	seat = seat_at(a->seat);
	if (seat) {
		/* Whoever finds the thread's seat finds it filled. One that is followed already keeps the seat that it has. */
		seat->tid = a->tid;
		seat->tgid = a->tgid;
		seat->cpu = NONE;
		seat->born_ns = bpf_ktime_get_ns();
		seat->state = SEAT_TAKEN;
		done = !bpf_map_update_elem(&followed, &thread, &a->seat, BPF_NOEXIST);
		if (!done)
			seat->state = SEAT_FREE;
	}
	bpf_task_release(p);
	return done;
}

static int adopt_nth(u32 nth, void *unused)
{
	struct adoption *a = &adoptions[nth % MAX_ADOPTED];

	if (!adopt_one(a))
		a->seat = NONE;
	return 0;
}

SEC("syscall")
int adopt(void *context)
{
	bpf_loop(nr_adoptions, adopt_nth, NULL, 0);
	return 0;
}
