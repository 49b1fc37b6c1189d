// SPDX-License-Identifier: GPL-2.0
/*
 * Counts of threads, told apart: counters run all the time on each CPU, and whenever threads take turns there, what they gained
 * is the former one's.
 *
 * The programs are attached to plain tracepoints and look into no structure of the kernel: threads are known by their addresses,
 * and say themselves what their numbers are when they leave a CPU for the first time. So nothing of the kernel's type
 * information has to be read, which would take longer than everything else at the start.
 *
 * What a thread has counted lies in memory that user space sees, in the rows of the seat that it took at its birth; they are written
 * only by the CPU that runs the thread. A seat is given back by user space, once it has read the last counts in it.
 */
#include "kernel.h"
#include "follow.h"
#include "seats.h"
#include "spare.h"

/* The state of a thread that leaves its CPU for good. */
#define TASK_DEAD 0x80

char LICENSE[] SEC("license") = "GPL";

const volatile struct follow_settings settings;
struct follow_control control;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct here);
} cpus SEC(".maps");

/* Events by set, place and CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__uint(max_entries, 1);
} events SEC(".maps");

static __always_inline struct here *here_at(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* Beyond the kinds that there are, on a CPU where nothing is counted or when it is nobody's turn, is the one of nothing. */
static __always_inline u32 kind_of(u32 class, u32 set)
{
	u32 kind = class * settings.sets + set;

	return kind < settings.kinds ? kind : settings.kinds;
}

/* The last row is for what is nobody's. */
static __always_inline u32 row_of(u32 seat, u32 kind)
{
	if (seat == NONE || kind >= settings.kinds)
		return (settings.seats + settings.nr_cpus) * settings.kinds;
	return seat * settings.kinds + kind;
}

/*
 * Reads the counters of a kind, and gives a row what they gained. Verifying is most of what loading takes, and grows with branches:
 * so there are few, and a function that is global is looked into once, not at each call.
 */
__noinline int read_counters(u32 cpu, u32 kind, u32 row_nr)
{
	struct row *row = bpf_map_lookup_elem(&rows, &row_nr);
	struct here *here = here_at(cpu);
	struct bpf_perf_event_value value;
	u64 counter, index;
	u32 place;

	if (!here || !row || kind > MAX_KINDS)
		return 0;
	for (place = 0; place < MAX_EVENTS && place < settings.events; place++) {
		if (place >= control.places[kind])
			break;
		index = (u64)(kind * settings.events + place) * settings.nr_cpus + cpu;
		/* How long an event counted costs as much again as how much. */
		if (place == control.timed[kind]) {
			if (bpf_perf_event_read_value(&events, index, &value, sizeof(value)))
				continue;
			counter = value.counter;
			row->running_ns += value.running - here->running_ns;
			here->running_ns = value.running;
		} else {
			counter = bpf_perf_event_read(&events, index);
			if ((s64)counter < 0)
				continue;
		}
		row->counts[place] += counter - here->last[place];
		here->last[place] = counter;
	}
	return 0;
}

static __always_inline u32 seat_of(u64 thread)
{
	u32 *seat = bpf_map_lookup_elem(&followed, &thread);

	return seat ? *seat : NONE;
}

/*
 * Marks a seat as being written, or as written. What was written before is seen before, which only an atomic operation sees to whose
 * result is wanted.
 */
static __always_inline void mark(struct seat *seat, u64 by)
{
	u64 before = __sync_fetch_and_add(&seat->changes, by);

	barrier_var(before);
}

static __always_inline void name_itself(struct seat *seat)
{
	u64 id = bpf_get_current_pid_tgid();

	seat->tid = id;
	seat->tgid = id >> 32;
}

/* A thread that was not seen to get its CPU, because it was adopted meanwhile or before, is no more. Whether it runs here. */
static __always_inline void leave_unseen(u64 thread, bool here)
{
	u32 nr = seat_of(thread);
	struct seat *seat;

	if (nr == NONE)
		return;
	bpf_map_delete_elem(&followed, &thread);
	seat = nr < settings.seats ? seat_at(nr) : NULL;
	if (!seat)
		return;
	if (here && !seat->tid)
		name_itself(seat);
	seat->state = SEAT_LEFT;
	mark(seat, 2);
}

/*
 * Threads take turns: what counters gained since the last time is the former one's. User space runs this too, on a CPU of its choice
 * and without a next thread: then what the one there has counted so far is put down.
 */
SEC("raw_tp/sched_switch")
int BPF_PROG(on_switch, bool preempt, void *prev, void *next, unsigned int state)
{
	u32 cpu = bpf_get_smp_processor_id(), nr = seat_of(next ? (u64)next : bpf_get_current_task()), kind, old, row_nr;
	struct here *here = here_at(cpu);
	struct seat *seat;
	struct row *row;
	u64 now, gone;

	if (!here)
		return 0;
	old = here->seat;
	if (old == NONE && state & TASK_DEAD)
		leave_unseen((u64)prev, true);
	if (old == NONE && nr == NONE)
		return 0;
	now = bpf_ktime_get_ns();
	kind = kind_of(here->class, control.set);
	if (old != NONE) {
		if (old == STANDING)
			old = settings.seats + cpu;
		row_nr = row_of(old, here->kind);
		row = bpf_map_lookup_elem(&rows, &row_nr);
		seat = seat_at(old);
		if (!seat || !row)
			return 0;
		mark(seat, 1);
		row->time_ns += now - here->since_ns;
		row->switches += !!next;
		row->migrations += seat->cpu != cpu && seat->cpu != NONE;
		row->cpu = cpu;
		read_counters(cpu, here->kind, row_nr);
		seat->at_ns = now;
		seat->cpu = cpu;
		if (!seat->tid)
			name_itself(seat);
		if (state & TASK_DEAD) {
			gone = (u64)prev;
			bpf_map_delete_elem(&followed, &gone);
			seat->state = SEAT_LEFT;
		}
		mark(seat, 1);
	}
	if (nr != NONE && (old == NONE || here->kind != kind))
		read_counters(cpu, kind, row_of(NONE, kind));
	here->since_ns = now;
	here->kind = kind;
	here->seat = nr;
	return 0;
}

/* A seat, if one is left. */
static __always_inline u32 take_seat(void)
{
	u64 fresh;
	u32 nr;

	if (bpf_map_pop_elem(&spare, &nr)) {
		if (control.fresh >= settings.seats)
			return STANDING;
		fresh = __sync_fetch_and_add(&control.fresh, 1);
		if (fresh >= settings.seats)
			return STANDING;
		nr = fresh;
	}
	__sync_fetch_and_add(&control.taken, 1);
	return nr;
}

/* The thread that runs here has given birth. The name is its own until the child gets one. */
SEC("raw_tp/sched_wakeup_new")
int BPF_PROG(on_birth, void *child)
{
	struct here *here = here_at(bpf_get_smp_processor_id());
	u64 thread = (u64)child;
	struct seat *seat;
	u32 nr;

	/* Who has just begun to be followed may not have been seen to run yet. */
	if (!here || (here->seat == NONE && seat_of(bpf_get_current_task()) == NONE))
		return 0;
	nr = take_seat();
	seat = nr == STANDING ? NULL : seat_at(nr);
	if (bpf_map_update_elem(&followed, &thread, &nr, 0) || !seat) {
		__sync_fetch_and_add(&control.missed, 1);
		return 0;
	}
	seat->born_ns = bpf_ktime_get_ns();
	seat->at_ns = seat->born_ns;
	seat->parent = bpf_get_current_pid_tgid();
	seat->cpu = NONE;
	bpf_get_current_comm(seat->name, sizeof(seat->name));
	seat->state = SEAT_TAKEN;
	mark(seat, 2);
	return 0;
}

/*
 * A thread gets a name. One that starts a program does so when the program begins, and may have another number from then on: its
 * process's, if it was not the first one there.
 */
SEC("raw_tp/task_rename")
int BPF_PROG(on_name, void *thread, const char *name)
{
	u32 cpu = bpf_get_smp_processor_id(), nr = seat_of((u64)thread);
	struct here *here = here_at(cpu);
	u64 key = (u64)thread;
	struct seat *seat;

	if (!here)
		return 0;
	if (nr == NONE && settings.program && !control.started && (u32)bpf_get_current_pid_tgid() == settings.program) {
		control.started = 1;
		nr = 0;
		bpf_map_update_elem(&followed, &key, &nr, 0);
		here->kind = kind_of(here->class, control.set);
		here->since_ns = bpf_ktime_get_ns();
		read_counters(cpu, here->kind, row_of(NONE, here->kind));
		here->seat = nr;
	}
	seat = nr < settings.seats ? seat_at(nr) : NULL;
	if (!seat)
		return 0;
	/* Its counts may be written meanwhile, elsewhere: they are to look changed, not unfinished. */
	bpf_probe_read_kernel_str(seat->name, sizeof(seat->name), name);
	if (key == bpf_get_current_task() && seat->tid && seat->tid != (u32)bpf_get_current_pid_tgid())
		seat->renumbered_ns = bpf_ktime_get_ns();
	seat->named++;
	mark(seat, 2);
	return 0;
}

/* A thread is forgotten. One that had ended before it was adopted leaves its seat now. */
SEC("raw_tp/sched_process_free")
int BPF_PROG(on_free, void *thread)
{
	leave_unseen((u64)thread, false);
	return 0;
}
