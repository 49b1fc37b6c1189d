// SPDX-License-Identifier: GPL-2.0
/*
 * Gives slots to running threads. It is apart from the programs that follow them, because it needs the kernel's type
 * information: only attaching to running threads waits until that is read. Every name is searched among all of them, so it
 * names two functions and no structure.
 */
#include "kernel.h"
#include "follow.h"
#include "slots.h"

char LICENSE[] SEC("license") = "GPL";

/* Threads by TID, and the slots that they are to get; NONE afterwards if the slot is not needed. */
struct adoption {
	u32 tid;
	u32 tgid;
	u32 slot;
} adoptions[MAX_ADOPTED];
u32 nr_adoptions;

static __always_inline bool adopt_one(const struct adoption *a)
{
	struct task_struct *p = bpf_task_from_pid(a->tid);
	struct slot *slot;
	u64 thread = (u64)p;
	bool done = false;

	if (!p)
		return false;
	slot = slot_at(a->slot);
	if (slot) {
		/* The slot is filled before it can be found. A thread that is followed already keeps its slot. */
		slot->tid = a->tid;
		slot->tgid = a->tgid;
		slot->cpu = NONE;
		slot->forked_ns = bpf_ktime_get_ns();
		slot->state = SLOT_TAKEN;
		done = !bpf_map_update_elem(&followed, &thread, &a->slot, BPF_NOEXIST);
		if (!done)
			slot->state = SLOT_FREE;
	}
	bpf_task_release(p);
	return done;
}

static int adopt_nth(u32 nth, void *unused)
{
	struct adoption *a = &adoptions[nth % MAX_ADOPTED];

	if (!adopt_one(a))
		a->slot = NONE;
	return 0;
}

SEC("syscall")
int adopt(void *context)
{
	bpf_loop(nr_adoptions, adopt_nth, NULL, 0);
	return 0;
}
