// SPDX-License-Identifier: GPL-2.0
/*
 * Counts by thread: counters run all the time on each CPU; at each context switch, what they gained is the previous thread's.
 *
 * The programs are attached to plain tracepoints and look into no structure of the kernel: threads are known by their addresses,
 * and say themselves what their numbers are when they leave a CPU for the first time. So nothing of the kernel's type
 * information has to be read, which would take longer than everything else at the start.
 *
 * Where a scheduler in the kernel places threads by speed-up factors, those are computed here as well (judge.h).
 *
 * What a thread has counted lies in memory that user space sees, in the rows of the slot that it took when it was forked; they are written
 * only by the CPU that runs the thread. A slot is given back by user space, once it has read the last counts in it.
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

/* Slots that were given back. */
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

/* What a counter has gained. One that was opened anew, since its CPU had been offline, begins at zero. */
static __always_inline u64 gain(u64 *last, u64 now)
{
	u64 before = *last;

	*last = now;
	return now >= before ? now - before : 0;
}

/*
 * Gives a row what counters of a kind have gained. Verifying is most of what loading takes, and grows with instructions, of which those
 * that settings rule out do not count: so this is in one place, and what a single event does not need is apart.
 */
static __noinline void read_counters(struct cpu_state *here, struct row *row, u32 cpu, u32 kind)
{
	u32 place = 0, first = (cpu * settings.kinds + kind) * settings.events;
	struct bpf_perf_event_value value;
	u64 counter;

	if (kind >= settings.kinds)
		return;
	/* How long an event counted costs as much again as how much. */
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
 * The same on a CPU that mostly met the thread before: looking it up among all takes longer than everything else at a switch. A thread that gets
 * a slot has it before it is counted here, and before it gets a CPU; so what was found is true until the next one does.
 */
static __always_inline u32 recent_slot_of(struct cpu_state *here, u64 thread)
{
	struct recent *recent = &here->recent[((u32)(thread >> 6) * 0x9e3779b1U) / (0x100000000ULL / MAX_RECENT) % MAX_RECENT];

	if (recent->thread == thread && recent->generation == *(volatile u64 *)&control.generation)
		return recent->slot;
	/* Read before the slot is looked for, which only an atomic operation sees to. */
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
 * Marks a slot as being written, or as written. What was written before is seen before, which takes an atomic operation
 * whose result is used.
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

/* A thread that was not seen to get its CPU, because it was adopted meanwhile or before, is no more. Whether it runs here. */
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
 * Some kernels do not trace every switch (seen in a small virtual machine, after each turn of one thread of its agent). A thread that
 * was not seen to come is counted from now on; what counters gained since the last switch that was seen belongs to no thread.
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
 * Context switch: what counters gained since the last one is added to the previous thread's counts. Without a next thread, what the
 * one that runs here has counted so far is put down.
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
		/* The slot of one that has exited may be another's by now. */
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

/* The same with speed-up factors. Loading takes time by instruction, so only one of the two is loaded. */
SEC("?raw_tp/sched_switch")
int BPF_PROG(on_switch_judging, bool preempt, void *prev, void *next, unsigned int state)
{
	return switch_threads((u64)prev, (u64)next, state, true);
}

/* A slot, if one is left. */
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

/* The thread that runs here has forked. The name is its own until the child gets one. */
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
 * A thread gets a name. One that starts a program does so when the program begins, and may have another number from then on: its
 * process's, if it was not the first one there.
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
	/* Its counts may be written meanwhile, elsewhere: they are to look changed, not unfinished. */
	bpf_probe_read_kernel_str(slot->name, sizeof(slot->name), name);
	if (key == bpf_get_current_task() && slot->tid && slot->tid != (u32)bpf_get_current_pid_tgid() &&
	    !slot->renumbered_ns)
		slot->renumbered_ns = bpf_ktime_get_ns();
	slot->named++;
	mark(slot, 2);
	return 0;
}

/* A thread has started a program. */
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

/* A thread is forgotten. One that was adopted and had ended before leaves its slot now. */
SEC("raw_tp/sched_process_free")
int BPF_PROG(on_free, void *thread)
{
	leave_unseen((u64)thread, false);
	return 0;
}
