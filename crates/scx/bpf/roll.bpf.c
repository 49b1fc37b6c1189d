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
#include "seats.h"
#include "spare.h"

#define BPF_RB_AVAIL_DATA 0
#define BPF_RB_FORCE_WAKEUP 2ULL
/* The state of a thread that has left its CPU for good, or is about to. */
#define TASK_DEAD 0x80
#define PF_EXITING 0x00000004

char LICENSE[] SEC("license") = "GPL";

const volatile struct roll_settings settings;
struct roll_control control;
/* Never written: makes the type known to user space. */
struct roll_event roll_event;

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

/*
 * Adds to a number, after all that was done before and before all that is done after: only operations whose results are wanted see
 * to that.
 */
static __always_inline void add(u64 *number, u64 more)
{
	u64 before = __sync_fetch_and_add(number, more);

	barrier_var(before);
}

/* A family, by its place in the lower half of its number; the upper one is how often that had been given to others before. */
static __always_inline struct family *family_of(u64 number)
{
	u32 place = number;
	struct family *family = bpf_map_lookup_elem(&families, &place);

	return family && family->number == number ? family : NULL;
}

/* Whoever goes through the seats sees a thread only with the family that it is of. */
static __always_inline void sit(struct seat *seat, u64 thread)
{
	u64 before = __sync_lock_test_and_set(&seat->thread, thread);

	barrier_var(before);
}

/* Whether there was a seat for a thread. */
static __always_inline bool put_down(u64 thread, u64 family)
{
	struct seat *seat;
	u32 nr;

	if (bpf_map_pop_elem(&spare, &nr)) {
		if (control.fresh >= settings.seats)
			goto full;
		nr = __sync_fetch_and_add(&control.fresh, 1);
	}
	seat = seat_at(nr);
	if (!seat)
		goto full;
	if (bpf_map_update_elem(&followed, &thread, &nr, 0)) {
		bpf_map_push_elem(&spare, &nr, 0);
		goto full;
	}
	seat->family = family;
	sit(seat, thread);
	return true;
full:
	__sync_fetch_and_add(&control.lost, 1);
	return false;
}

/* Who is moved from one account to another may be in neither meanwhile, or in both. */
static __always_inline void begin_move(struct family *family)
{
	add(&family->begun, 1);
}

static __always_inline void end_move(struct family *family)
{
	add(&family->ended, 1);
}

/*
 * The family of a thread that runs here, or 0: one that has entered by its number sits down now. Where there is no seat for it, it
 * goes on being asked for by its number, and whatever befalls it is lost.
 */
static __always_inline u64 meet(u64 thread, u32 tid)
{
	u32 *nr = bpf_map_lookup_elem(&followed, &thread);
	struct seat *seat = nr ? seat_at(*nr) : NULL;
	struct family *family;
	u64 *known, number;

	if (seat)
		return seat->family;
	known = bpf_map_lookup_elem(&entrants, &tid);
	if (!known)
		return 0;
	number = *known;
	family = family_of(number);
	if (!family)
		return 0;
	begin_move(family);
	if (put_down(thread, number))
		family->met = 1;
	else
		number = 0;
	end_move(family);
	if (number)
		bpf_map_delete_elem(&entrants, &tid);
	return number;
}

static __always_inline void tell(u32 what, u32 pid, u32 tid, u32 parent)
{
	struct roll_event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);
	bool crowded;

	if (!event) {
		__sync_fetch_and_add(&control.lost, 1);
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

/* Also of those whom the kernel has work for a process, which `sched_process_fork` does not tell of. */
SEC("raw_tp/task_newtask")
int BPF_PROG(on_birth, void *child)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 family = meet(bpf_get_current_task(), tid);

	if (family && put_down((u64)child, family))
		tell(ROLL_BORN, field(child, settings.tgid), field(child, settings.pid), tid);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(on_exec, void *thread, u32 tid_before)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (meet((u64)thread, tid_before))
		tell(ROLL_STARTS, pid, pid, 0);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(on_exit, void *thread)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id;

	if (meet((u64)thread, tid))
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
	seat = seat_at(nr);
	if (!seat)
		return 0;
	family = family_of(seat->family);
	if (family) {
		begin_move(family);
		sit(seat, 0);
		__sync_fetch_and_add(&family->gone_ns, ran_ns(thread));
		end_move(family);
	} else {
		sit(seat, 0);
	}
	bpf_map_push_elem(&spare, &nr, 0);
	return 0;
}

/* A number that is written elsewhere, as of now and not before. */
static __always_inline u64 now(u64 *number)
{
	return __sync_fetch_and_add(number, 0);
}

static long begin_sum(u32 place, void *unused)
{
	struct family *family = bpf_map_lookup_elem(&families, &place);

	if (!family)
		return 0;
	family->leaving = 0;
	family->moves = now(&family->ended);
	/* One that had begun and not ended has begun more often. */
	family->whole = now(&family->begun) == family->moves;
	family->ran_ns = now(&family->gone_ns);
	return 0;
}

static long end_sum(u32 place, void *unused)
{
	struct family *family = bpf_map_lookup_elem(&families, &place);

	if (family && now(&family->begun) != family->moves)
		family->whole = 0;
	return 0;
}

static long add_thread(u32 nr, void *unused)
{
	struct seat *seat = seat_at(nr);
	const void *thread = seat ? (const void *)now(&seat->thread) : NULL;
	struct family *family = thread ? family_of(seat->family) : NULL;
	u8 on_cpu = 0;

	/* It may be another one's seat by now. */
	if (!family || now(&seat->thread) != (u64)thread)
		return 0;
	/* Whoever has left is asked afterwards how long it ran. */
	if (field(thread, settings.flags) & PF_EXITING) {
		/* An integer of one or four bytes. */
		bpf_probe_read_kernel(&on_cpu, sizeof(on_cpu), thread + settings.on_cpu);
		family->leaving += !(field(thread, settings.state) & TASK_DEAD) || on_cpu;
	}
	family->ran_ns += ran_ns(thread);
	return 0;
}

/* Adds up how long families ran, without those of their threads that have not been met. */
SEC("syscall")
int add_up(void *context)
{
	bpf_loop(control.families, begin_sum, NULL, 0);
	bpf_loop(control.fresh, add_thread, NULL, 0);
	bpf_loop(control.families, end_sum, NULL, 0);
	return 0;
}
