/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ends time slices on time. The kernel checks time slices when its clock ticks, every few milliseconds, and threads would wait
 * for that. So a timer goes off at their end. It runs only while a thread waits, at most once per time slice and CPU.
 */
#pragma once

#define CLOCK_MONOTONIC 1
/* Remaining time below which a time slice has ended. */
#define NEARLY_NS 50000

struct alarm {
	struct bpf_timer timer;
	u64 until_ns; /* end of the time slice of the thread that runs on the CPU; 0 if none of ours does */
	u32 set; /* will go off */
	u32 favoured; /* number of threads that have woken since and were let go first */
};

/* By the CPU whose time slices they end; they go off on the CPU where they were set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct alarm);
} alarms SEC(".maps");

static __always_inline struct alarm *alarm_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&alarms, &key);
}

/* Stores the end of the time slice on this CPU. */
static __always_inline void note_slice(u32 cpu, u64 until_ns)
{
	struct alarm *alarm = alarm_of(cpu);

	if (!alarm)
		return;
	alarm->until_ns = until_ns;
	alarm->favoured = 0;
}

/* Claims the one favour per time slice, for a thread that wakes. */
static __always_inline bool claim_favour(s32 cpu)
{
	struct alarm *alarm = alarm_of(cpu);

	return alarm && !alarm->favoured++;
}

static __always_inline void start_alarm(struct alarm *alarm, u64 now)
{
	u64 until = alarm->until_ns;

	if (!until)
		until = now + settings.slice_ns;
	bpf_timer_start(&alarm->timer, (s64)(until - now) > 0 ? until - now : 0, 0);
}

/*
 * Sets the alarm for a thread that is about to wait for this CPU. If it goes off just before the thread is in its queue, no
 * thread seems to wait. The time slice then ends by the kernel's clock.
 */
static __always_inline void set_alarm(s32 cpu)
{
	struct alarm *alarm = alarm_of(cpu);

	if (alarm && !alarm->set && !__sync_lock_test_and_set(&alarm->set, 1))
		start_alarm(alarm, scx_bpf_now());
}

/* True if threads wait in a queue that the CPU serves. */
static __always_inline bool is_wanted(s32 cpu)
{
	struct served *served = served_by(cpu);
	u32 i, count;

	if (!served)
		return false;
	if (served->own && scx_bpf_dsq_nr_queued(QUEUE_OF_CPU + cpu) > 0)
		return true;
	count = served->count < MAX_CPU_QUEUES ? served->count : MAX_CPU_QUEUES;
	bpf_for(i, 0, count) {
		if (scx_bpf_dsq_nr_queued(QUEUE_OF_TARGET + served->targets[BOUNDED(i, MAX_CPU_QUEUES)]) > 0)
			return true;
	}
	return false;
}

static int go_off(void *map, u32 *key, struct alarm *alarm)
{
	u64 now = scx_bpf_now(), until = alarm->until_ns;
	s32 cpu = *key;

	alarm->set = 0;
	if (!is_wanted(cpu))
		return 0;
	if (until && (s64)(until - now) < NEARLY_NS) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		/* Until the next thread has been stored. */
		alarm->until_ns = 0;
	}
	if (!__sync_lock_test_and_set(&alarm->set, 1))
		start_alarm(alarm, now);
	return 0;
}

static __always_inline s32 prepare_alarms(void)
{
	struct alarm *alarm;
	s32 error;
	u32 cpu;

	bpf_for(cpu, 0, settings.nr_cpus) {
		alarm = alarm_of(cpu);
		if (!alarm)
			return -EINVAL;
		error = bpf_timer_init(&alarm->timer, &alarms, CLOCK_MONOTONIC);
		if (!error)
			error = bpf_timer_set_callback(&alarm->timer, go_off);
		if (error)
			return error;
	}
	return 0;
}
