// SPDX-License-Identifier: GPL-2.0
/*
 * A roll of threads: who was born to whom, starts a program and ends, and how long families ran. Nothing is done when threads take
 * turns on a CPU, since the kernel knows how long each of them ran, until its memory is given back.
 *
 * The programs are attached to plain tracepoints, and user space says where a thread's fields are: having that looked up by the
 * loader would take many times as long as all the rest of loading.
 */
#include "kernel.h"
#include "roll.h"

#define BPF_RB_AVAIL_DATA 0
#define BPF_RB_FORCE_WAKEUP 2ULL
/* The state of a thread that has left its CPU for good, or is about to. */
#define TASK_DEAD 0x80
#define PF_EXITING 0x00000004

char LICENSE[] SEC("license") = "GPL";

const volatile struct roll_settings settings;
/* Events for which there was no room in the ring, and threads for which there was none on the roll. */
u64 lost;
/* Never written: makes the type known to user space. */
struct roll_event roll_event;

/* Threads that were being moved from one account to another, and those that have been: who adds up meanwhile may miss one. */
u64 moving;
u64 moved;

/* Seats that were ever taken, and families that there ever were. */
u32 taken;
u32 nr_families;

/* By the address of a thread in the kernel: its seat. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} followed SEC(".maps");

/* Who sits where, since going through an array is going through those only that are there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seat);
} seats SEC(".maps");

/* Seats that were given back. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(u32));
} spare SEC(".maps");

/* Those that user space has put on the roll and that have not been met since, by number: their families. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} entrants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct family);
} families SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

static __always_inline u32 field(const void *thread, u32 offset)
{
	u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), thread + offset);
	return value;
}

static __always_inline u64 ran_ns(const void *thread)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), thread + settings.ran);
	return value;
}

static __always_inline struct seat *seat_of(u64 thread)
{
	u32 *nr = bpf_map_lookup_elem(&followed, &thread);

	return nr ? bpf_map_lookup_elem(&seats, nr) : NULL;
}

/* A family, by its place in the lower half of its number; the upper one is how often that had been given to others before. */
static __always_inline struct family *family_of(u64 number)
{
	u32 place = number;
	struct family *family = bpf_map_lookup_elem(&families, &place);

	return family && family->number == number ? family : NULL;
}

static __always_inline void put_down(u64 thread, u64 family)
{
	struct seat *seat;
	u32 nr;

	if (bpf_map_pop_elem(&spare, &nr))
		nr = __sync_fetch_and_add(&taken, 1);
	seat = bpf_map_lookup_elem(&seats, &nr);
	if (!seat || bpf_map_update_elem(&followed, &thread, &nr, 0)) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	seat->family = family;
	seat->thread = thread;
}

/* The family of a thread that runs here, or another one's number of it, which may have entered by that. */
static __always_inline bool meet(u64 thread, u32 tid, u64 *family)
{
	struct seat *seat = seat_of(thread);
	u64 *known;

	if (seat) {
		*family = seat->family;
		return true;
	}
	known = bpf_map_lookup_elem(&entrants, &tid);
	if (!known)
		return false;
	*family = *known;
	__sync_fetch_and_add(&moving, 1);
	bpf_map_delete_elem(&entrants, &tid);
	put_down(thread, *family);
	__sync_fetch_and_add(&moved, 1);
	return true;
}

static __always_inline void tell(u32 what, u32 pid, u32 tid, u32 parent)
{
	struct roll_event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);
	bool crowded;

	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->what = what;
	event->pid = pid;
	event->tid = tid;
	event->parent = parent;
	bpf_get_current_comm(event->name, sizeof(event->name));
	crowded = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > RING_BYTES / 2;
	bpf_ringbuf_submit(event, crowded ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(on_fork, void *parent, void *child)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 family;

	if (!meet((u64)parent, tid, &family))
		return 0;
	put_down((u64)child, family);
	tell(ROLL_BORN, field(child, settings.tgid), field(child, settings.pid), tid);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(on_exec, void *thread, u32 tid_before)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	u64 family;

	if (meet((u64)thread, tid_before, &family))
		tell(ROLL_STARTS, pid, pid, 0);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(on_exit, void *thread)
{
	u64 id = bpf_get_current_pid_tgid(), family;
	u32 tid = id;

	if (meet((u64)thread, tid, &family))
		tell(ROLL_ENDS, id >> 32, tid, 0);
	return 0;
}

/* A thread's memory is given back: nothing is added any more to what it ran. */
SEC("raw_tp/sched_process_free")
int BPF_PROG(on_free, void *thread)
{
	u64 key = (u64)thread;
	u32 *known = bpf_map_lookup_elem(&followed, &key), nr;
	struct family *family;
	struct seat *seat;

	if (!known)
		return 0;
	nr = *known;
	bpf_map_delete_elem(&followed, &key);
	seat = bpf_map_lookup_elem(&seats, &nr);
	if (!seat)
		return 0;
	__sync_fetch_and_add(&moving, 1);
	seat->thread = 0;
	family = family_of(seat->family);
	if (family)
		__sync_fetch_and_add(&family->gone_ns, ran_ns(thread));
	__sync_fetch_and_add(&moved, 1);
	bpf_map_push_elem(&spare, &nr, 0);
	return 0;
}

static long begin_sum(u32 nr, void *unused)
{
	struct family *family = bpf_map_lookup_elem(&families, &nr);

	if (family) {
		family->ran_ns = family->gone_ns;
		family->leaving = 0;
	}
	return 0;
}

static long add_thread(u32 nr, void *unused)
{
	struct seat *seat = bpf_map_lookup_elem(&seats, &nr);
	const void *thread = seat ? (const void *)seat->thread : NULL;
	struct family *family = seat ? family_of(seat->family) : NULL;
	u8 on_cpu = 0;

	if (!thread || !family)
		return 0;
	family->ran_ns += ran_ns(thread);
	if (!(field(thread, settings.flags) & PF_EXITING))
		return 0;
	/* An integer of one or four bytes. */
	bpf_probe_read_kernel(&on_cpu, sizeof(on_cpu), thread + settings.on_cpu);
	family->leaving += !(field(thread, settings.state) & TASK_DEAD) || on_cpu;
	return 0;
}

/* Adds up how long families ran, without those of their threads that have not been met. */
SEC("syscall")
int add_up(void *context)
{
	bpf_loop(nr_families, begin_sum, NULL, 0);
	bpf_loop(taken, add_thread, NULL, 0);
	return 0;
}
