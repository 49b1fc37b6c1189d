/* SPDX-License-Identifier: GPL-2.0 */
/* The scheduler's maps and small lookup functions. */
#pragma once

const volatile struct settings settings;
struct control control;
struct counters counters;
struct command commands[MAX_COMMANDS];
u32 nr_commands;
struct definition definition;
char exit_reason[128];
char exit_message[256];
/* Never written: makes the type known to user space. */
struct event event_record;

/* Set of CPUs with a queue of its own. */
struct target {
	struct bpf_cpumask __kptr *mask;
	u64 clock; /* virtual time of the queue; continues when it becomes another target, so that no thread is ahead of it */
	u64 used_ns; /* time when a thread last came or left */
	u32 users; /* number of threads with this target; not counted for TARGET_ANYWHERE */
	u32 online; /* number of its online CPUs */
	u32 known; /* true if it has been defined */
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TARGETS);
	__type(key, u32);
	__type(value, struct target);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct served);
} serving SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} ring SEC(".maps");

static __always_inline struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

/* State of a thread that belongs to a program of the workload; else NULL. */
static __always_inline struct thread *followed_thread_of(struct task_struct *p)
{
	struct thread *t = thread_of(p);

	return t && t->followed ? t : NULL;
}

static __always_inline struct target *target_at(u32 id)
{
	return bpf_map_lookup_elem(&targets, &id);
}

static __always_inline struct served *served_by(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&serving, &key);
}

static __always_inline bool is_queue_of_cpu(u32 queue)
{
	return queue & QUEUE_OF_CPU;
}

static __always_inline void use_target(u32 id, s32 by)
{
	struct target *target = id == TARGET_ANYWHERE ? NULL : target_at(id);

	if (!target)
		return;
	__sync_fetch_and_add(&target->users, by);
	target->used_ns = bpf_ktime_get_ns();
}

/* Sets a thread's target. Several callers may do so at the same time. */
static __always_inline void settle(struct thread *t, u32 id)
{
	if (t->target == id)
		return;
	use_target(id, 1);
	use_target(__sync_lock_test_and_set(&t->target, id), -1);
}

/* Target of a thread. A target without an online CPU counts as any CPU. */
static __always_inline u32 target_of(const struct thread *t)
{
	struct target *target = target_at(t->target);

	return target && target->online ? t->target : TARGET_ANYWHERE;
}

static __always_inline u64 *clock_of(u32 queue)
{
	struct served *served;
	struct target *target;

	if (is_queue_of_cpu(queue)) {
		served = served_by(queue - QUEUE_OF_CPU);
		return served ? &served->clock : NULL;
	}
	target = target_at(queue - QUEUE_OF_TARGET);
	return target ? &target->clock : NULL;
}

/* Time slice of a thread. */
static __always_inline u64 slice_of(const struct thread *t)
{
	return t->slice_ns ? t->slice_ns : settings.slice_ns;
}

/* Reports an event of a thread to user space; only forks, execs and exits wake it. */
static __always_inline void report_ran(struct task_struct *p, const struct thread *t, u32 kind, u32 from, u32 to, u64 ran_ns)
{
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&counters.lost, 1);
		return;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->tid = p->pid;
	event->tgid = p->tgid;
	event->program = t->program;
	event->from = from;
	event->to = to;
	event->ran_ns = ran_ns;
	bpf_ringbuf_submit(event, kind == EVENT_NEW || kind == EVENT_EXEC || kind == EVENT_EXIT ? 0 : BPF_RB_NO_WAKEUP);
}

static __always_inline void report(struct task_struct *p, const struct thread *t, u32 kind, u32 from, u32 to)
{
	report_ran(p, t, kind, from, to, 0);
}
