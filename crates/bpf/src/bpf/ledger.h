/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of threads: read when a thread gets its CPU, added up at ticks and when it leaves.
 *
 * Sums only grow; user space takes differences, so that a record that is lost loses no counts. They are written by the CPU
 * that runs the thread and by no other; `changes` tells readers elsewhere whether they caught it in the middle.
 */
#pragma once

/* Bit-fiddling the compiler cannot see through: keeps an index within its array for the verifier. */
#define BOUNDED(index, count) ((index) & ((count)-1))

static __always_inline u32 row_of(u32 type, u32 set)
{
	return BOUNDED(type * MAX_SETS + BOUNDED(set, MAX_SETS), MAX_TYPES * MAX_SETS);
}

/* Reads counter `slot` of a set on this CPU. */
static __always_inline bool read_event(u32 set, u32 slot, u32 cpu, struct bpf_perf_event_value *value)
{
	u64 index = (u64)(set * MAX_EVENTS + slot) * settings.nr_cpus + cpu;

	if (!bpf_perf_event_read_value(&events, index, value, sizeof(*value)))
		return true;
	__sync_fetch_and_add(&counters.unread, 1);
	return false;
}

/* The thread has just got this CPU: remembers where the counters stand. */
static __always_inline void open_stretch(struct ledger *l, u32 cpu, u64 now)
{
	u32 set = BOUNDED(control.set, MAX_SETS), slot, slots;
	struct bpf_perf_event_value value;

	l->set = set;
	l->cpu = cpu;
	slots = control.slots[row_of(type_of(cpu), set)];
	for (slot = 0; slot < MAX_EVENTS && slots >> slot; slot++) {
		u64 *reading = &l->readings[BOUNDED(slot, MAX_EVENTS) * 3];

		if (!(slots >> slot & 1) || !read_event(set, slot, cpu, &value))
			continue;
		reading[0] = value.counter;
		reading[1] = value.enabled;
		reading[2] = value.running;
	}
	l->since_ns = now;
}

/* What was gained. A counter that was opened anew, since its CPU had been offline, began at zero. */
static __always_inline u64 gain(u64 before, u64 now)
{
	return now >= before ? now - before : 0;
}

/* Adds what the counters gained since `open_stretch`. */
static __always_inline void add_stretch(struct ledger *l, u32 cpu, u64 now)
{
	u32 set = BOUNDED(l->set, MAX_SETS), row = row_of(type_of(cpu), set), slot, slots, first;
	struct sum *sum = &l->sums[row];
	struct bpf_perf_event_value value;

	slots = control.slots[row];
	first = slots & -slots;
	__sync_fetch_and_add(&l->changes, 1);
	sum->time_ns += now - l->since_ns;
	for (slot = 0; slot < MAX_EVENTS && slots >> slot; slot++) {
		u64 *reading = &l->readings[BOUNDED(slot, MAX_EVENTS) * 3];

		if (!(slots >> slot & 1) || !read_event(set, slot, cpu, &value))
			continue;
		sum->counts[BOUNDED(slot, MAX_EVENTS)] += gain(reading[0], value.counter);
		/* A set is one group: its first event's times are everybody's. */
		if (1U << slot == first) {
			sum->enabled_ns += gain(reading[1], value.enabled);
			sum->running_ns += gain(reading[2], value.running);
		}
	}
	__sync_fetch_and_add(&l->changes, 1);
	l->since_ns = 0;
}

/*
 * Another CPU may carry out a callback for a thread that it does not run; counters can only be read where they count, so
 * this stretch is left out.
 */
static __always_inline bool is_here(struct task_struct *p, u32 cpu)
{
	if (scx_bpf_task_cpu(p) == (s32)cpu)
		return true;
	__sync_fetch_and_add(&counters.foreign, 1);
	return false;
}

static __always_inline void start_counting(struct task_struct *p, struct ledger *l, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();

	l->since_ns = 0;
	if (is_here(p, cpu))
		open_stretch(l, cpu, now);
}

static __always_inline void stop_counting(struct task_struct *p, struct ledger *l, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();

	if (l->since_ns && l->cpu == cpu && is_here(p, cpu))
		add_stretch(l, cpu, now);
}

/* Tells user space the last sums of a thread that ends. */
static __always_inline void tell_sums(struct task_struct *p, const struct ledger *l)
{
	struct told_sum *told;
	u32 row;

	bpf_for(row, 0, MAX_TYPES * MAX_SETS) {
		const struct sum *sum = &l->sums[BOUNDED(row, MAX_TYPES * MAX_SETS)];

		if (!sum->time_ns)
			continue;
		told = bpf_ringbuf_reserve(&ring, sizeof(*told), 0);
		if (!told) {
			__sync_fetch_and_add(&counters.lost, 1);
			return;
		}
		told->head.at_ns = bpf_ktime_get_ns();
		told->head.kind = TOLD_SUM;
		told->head.tid = p->pid;
		told->head.tgid = p->tgid;
		told->head.program = l->program;
		told->head.from = row;
		told->head.to = l->cpu;
		told->sum = *sum;
		bpf_ringbuf_submit(told, 0);
	}
}
