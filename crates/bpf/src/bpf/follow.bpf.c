// SPDX-License-Identifier: GPL-2.0
/*
 * Counts by thread: counters run all the time on each CPU. At each context switch, their increase belongs to the previous
 * thread.
 *
 * The programs are attached to plain tracepoints and read no structure of the kernel. Threads are known by their addresses, and
 * report their TIDs when they leave a CPU for the first time. So no type information of the kernel has to be read, which would
 * take longer than everything else at the start.
 *
 * If a scheduler in the kernel places threads by speed-up factors, those are computed here as well (judge.h).
 *
 * The counts of a thread are in memory that user space sees, in the rows of the slot that it took when it was forked. They are
 * written only by the CPU that runs the thread. User space returns a slot once it has read the last counts in it.
 */
#include "kernel.h"
#include "follow.h"
#include "slots.h"
#include "metrics.h"

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
	__type(value, struct cpu_state);
} cpus SEC(".maps");

/* Events by set, place and CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__uint(max_entries, 1);
} events SEC(".maps");

/* Slots that were returned. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(u32));
} spare SEC(".maps");

#include "judge.h"

static __always_inline struct cpu_state *here_at(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* Increase of a counter. A counter that was opened again, since its CPU had been offline, begins at zero. */
static __always_inline u64 gain(u64 *last, u64 now)
{
	u64 before = *last;

	*last = now;
	return now >= before ? now - before : 0;
}

/*
 * Adds the increase of a kind's counters to a row. Verification is most of the loading time, and grows with the number of
 * instructions. Instructions that settings rule out do not count. So this is in one place, and the part that a single event
 * does not need is apart.
 */
static __noinline void read_counters(struct cpu_state *here, struct row *row, u32 cpu, u32 kind)
{
	u32 place = 0, first = (cpu * settings.kinds + kind) * settings.events;
	struct bpf_perf_event_value value;
	u64 counter;

	if (kind >= settings.kinds)
		return;
	/* The time that an event counted costs as much to read as its count. */
	if (settings.timed) {
		if (!bpf_perf_event_read_value(&events, first, &value, sizeof(value))) {
			row->running_ns += gain(&here->running_ns, value.running);
			row->counts[0] += gain(&here->last[0], value.counter);
		}
	} else if (settings.events) {
		counter = bpf_perf_event_read(&events, first);
		if ((s64)counter >= 0)
			row->counts[0] += gain(&here->last[0], counter);
	}
	if (settings.events < 2)
		return;
#pragma clang loop unroll(disable)
	for (place = 1; place < MAX_EVENTS && place < settings.events; place++) {
		counter = bpf_perf_event_read(&events, first + place);
		if ((s64)counter < 0)
			continue;
		row->counts[place] += gain(&here->last[place], counter);
	}
}

static __always_inline u32 slot_of(u64 thread)
{
	u32 *slot = bpf_map_lookup_elem(&followed, &thread);

	return slot ? *slot : NONE;
}

/*
 * Slot of a thread, on a CPU that mostly met the thread before: a lookup among all takes longer than everything else at a
 * context switch. A thread that gets a slot has it before it is counted here, and before it gets a CPU. So a result is valid
 * until another thread gets a slot.
 */
static __always_inline u32 recent_slot_of(struct cpu_state *here, u64 thread)
{
	struct recent *recent = &here->recent[((u32)(thread >> 6) * 0x9e3779b1U) / (0x100000000ULL / MAX_RECENT) % MAX_RECENT];

	if (recent->thread == thread && recent->generation == *(volatile u64 *)&control.generation)
		return recent->slot;
	/* Read before the slot is looked up; only an atomic operation guarantees that. */
	recent->generation = __sync_fetch_and_add(&control.generation, 0);
	recent->thread = thread;
	recent->slot = slot_of(thread);
	return recent->slot;
}

static __always_inline void another_generation(void)
{
	__sync_fetch_and_add(&control.generation, 1);
}

/*
 * Marks a slot as being written, or as written. Earlier writes must be visible before, which takes an atomic operation whose
 * result is used.
 */
static __always_inline void mark(struct slot *slot, u64 by)
{
	u64 before = __sync_fetch_and_add(&slot->changes, by);

	barrier_var(before);
}

static __always_inline void name_itself(struct slot *slot)
{
	u64 id = bpf_get_current_pid_tgid();

	slot->tid = id;
	slot->tgid = id >> 32;
}

/*
 * Removes a thread that was not seen to get its CPU, because it was adopted meanwhile or before. `here` is true if it runs
 * here.
 */
static __always_inline void leave_unseen(u64 thread, bool here)
{
	u32 nr = slot_of(thread);
	struct slot *slot;

	if (nr == NONE)
		return;
	bpf_map_delete_elem(&followed, &thread);
	another_generation();
	slot = nr < settings.slots ? slot_at(nr) : NULL;
	if (!slot)
		return;
	if (here && !slot->tid)
		name_itself(slot);
	slot->state = SLOT_EXITED;
	mark(slot, 2);
}

/*
 * Starts counting a thread that was not seen to get its CPU. Some kernels do not trace every switch (seen in a small virtual
 * machine, after each switch to a thread of its agent). The increase of counters since the last traced switch belongs to no
 * thread.
 */
static __noinline void catch_up(struct cpu_state *here, u64 thread, u32 cpu)
{
	u32 nr = slot_of(thread);

	here->slot = nr == SHARED_SLOT ? settings.slots + cpu : nr;
	if (nr == NONE)
		return;
	here->since_ns = bpf_ktime_get_ns();
	here->kind = here->wanted;
	read_counters(here, &here->rest, cpu, here->kind);
}

/*
 * Context switch: the increase of counters since the last one is added to the previous thread's counts. Without a next thread,
 * the counts so far of the running thread are stored.
 */
static __always_inline int switch_threads(u64 leaver, u64 thread, unsigned int state, bool judging)
{
	u32 cpu = bpf_get_smp_processor_id(), nr, old, row_nr;
	u64 leaves = 1, now;
	struct cpu_state *here = here_at(cpu);
	struct judgement *judged = NULL;
	struct slot *slot;
	struct row *row;

	if (!here)
		return 0;
	if (!thread) {
		thread = bpf_get_current_task();
		leaver = thread;
		leaves = 0;
	}
	if (here->thread != leaver)
		catch_up(here, leaver, cpu);
	here->thread = thread;
	nr = recent_slot_of(here, thread);
	old = here->slot;
	if (!settings.program && old == NONE && state & TASK_DEAD)
		leave_unseen(leaver, true);
	if (old == NONE && nr == NONE)
		return 0;
	if (nr == SHARED_SLOT)
		nr = settings.slots + cpu;
	now = bpf_ktime_get_ns();
	if (old != NONE) {
		slot = slot_at(old);
		row_nr = old * settings.kinds + here->kind;
		row = here->kind < settings.kinds ? bpf_map_lookup_elem(&rows, &row_nr) : &here->rest;
		if (!slot || !row)
			return 0;
		if (judging && old < settings.slots && here->kind < settings.kinds) {
			judged = judgement_of(old, slot);
			if (judged)
				judge_turn(leaver, judged, old, here->kind, row, here->since_ns);
		}
		mark(slot, 1);
		row->time_ns += now - here->since_ns;
		row->switches += leaves;
		if (slot->cpu != cpu) {
			row->migrations += slot->cpu != NONE;
			slot->cpu = cpu;
		}
		row->cpu = cpu;
		read_counters(here, row, cpu, here->kind);
		slot->at_ns = now;
		if (!slot->tid)
			name_itself(slot);
		if (state & TASK_DEAD) {
			bpf_map_delete_elem(&followed, &leaver);
			another_generation();
			slot->state = SLOT_EXITED;
		}
		mark(slot, 1);
		/* The slot of a thread that has exited may be another's by now. */
		if (judged && !(state & TASK_DEAD))
			judge(leaver, judged, old, here->kind, row, now);
	}
	here->since_ns = now;
	here->slot = nr;
	if (nr != NONE && (old == NONE || here->kind != here->wanted)) {
		here->kind = here->wanted;
		read_counters(here, &here->rest, cpu, here->kind);
	}
	return 0;
}

/* User space runs this too, on a CPU of its choice and without threads. */
SEC("raw_tp/sched_switch")
int BPF_PROG(on_switch, bool preempt, void *prev, void *next, unsigned int state)
{
	return switch_threads((u64)prev, (u64)next, state, false);
}

/* Like `on_switch`, with speed-up factors. Loading takes time by instruction, so only one of the two is loaded. */
SEC("?raw_tp/sched_switch")
int BPF_PROG(on_switch_judging, bool preempt, void *prev, void *next, unsigned int state)
{
	return switch_threads((u64)prev, (u64)next, state, true);
}

/* Takes a slot, if one is left; else NONE. */
static __always_inline u32 take_slot(void)
{
	u64 fresh;
	u32 nr;

	if (bpf_map_pop_elem(&spare, &nr)) {
		fresh = __sync_fetch_and_add(&control.fresh, 1);
		if (fresh >= settings.slots)
			return SHARED_SLOT;
		nr = fresh;
	}
	__sync_fetch_and_add(&control.taken, 1);
	return nr;
}

/* Handles a fork by the thread that runs here. The child has this thread's name until it gets its own. */
SEC("raw_tp/sched_wakeup_new")
int BPF_PROG(on_fork, void *child)
{
	u64 thread = (u64)child;
	struct slot *slot;
	long failed;
	u32 nr;

	/* A thread that has just begun to be followed may not have been seen to run yet. */
	if (slot_of(bpf_get_current_task()) == NONE)
		return 0;
	nr = take_slot();
	slot = nr == SHARED_SLOT ? NULL : slot_at(nr);
	failed = bpf_map_update_elem(&followed, &thread, &nr, 0);
	another_generation();
	if (failed && slot) {
		__sync_fetch_and_add(&control.taken, -1);
		bpf_map_push_elem(&spare, &nr, 0);
	}
	if (failed || !slot) {
		__sync_fetch_and_add(&control.missed, 1);
		return 0;
	}
	slot->forked_ns = bpf_ktime_get_ns();
	slot->at_ns = slot->forked_ns;
	slot->parent = bpf_get_current_pid_tgid();
	slot->cpu = NONE;
	bpf_get_current_comm(slot->name, sizeof(slot->name));
	slot->state = SLOT_TAKEN;
	mark(slot, 2);
	return 0;
}

/*
 * Handles a new name of a thread. A thread that executes a program gets its name when the program begins. It may have another
 * TID from then on: its process's, if it was not the main thread.
 */
SEC("raw_tp/task_rename")
int BPF_PROG(on_name, void *thread, const char *name)
{
	u32 cpu = bpf_get_smp_processor_id(), nr = slot_of((u64)thread);
	u64 key = (u64)thread;
	struct cpu_state *here;
	struct slot *slot;

	if (settings.program && nr == NONE && !control.started && (u32)bpf_get_current_pid_tgid() == settings.program) {
		here = here_at(cpu);
		if (!here)
			return 0;
		control.started = 1;
		nr = 0;
		bpf_map_update_elem(&followed, &key, &nr, 0);
		another_generation();
		here->kind = here->wanted;
		here->since_ns = bpf_ktime_get_ns();
		read_counters(here, &here->rest, cpu, here->kind);
		here->slot = nr;
		here->thread = key;
	}
	slot = nr < settings.slots ? slot_at(nr) : NULL;
	if (!slot)
		return 0;
	/* Its counts may be written meanwhile, on another CPU: they must look changed, not unfinished. */
	bpf_probe_read_kernel_str(slot->name, sizeof(slot->name), name);
	if (key == bpf_get_current_task() && slot->tid && slot->tid != (u32)bpf_get_current_pid_tgid() &&
	    !slot->renumbered_ns)
		slot->renumbered_ns = bpf_ktime_get_ns();
	slot->named++;
	mark(slot, 2);
	return 0;
}

/* Handles an exec of a thread. */
SEC("raw_tp/sched_process_exec")
int BPF_PROG(on_exec, void *thread)
{
	u32 nr = slot_of((u64)thread);
	struct slot *slot = nr < settings.slots ? slot_at(nr) : NULL;

	if (!slot)
		return 0;
	slot->exec_ns = bpf_ktime_get_ns();
	mark(slot, 2);
	return 0;
}

/* Handles the end of a thread in the kernel. An adopted thread that had ended before leaves its slot now. */
SEC("raw_tp/sched_process_free")
int BPF_PROG(on_free, void *thread)
{
	leave_unseen((u64)thread, false);
	return 0;
}
