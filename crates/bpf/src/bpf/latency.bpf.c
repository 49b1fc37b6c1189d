// SPDX-License-Identifier: GPL-2.0
/*
 * Run-queue latency of threads: from their wake-up to running (wakeup latency), and from preemption to running again. Each wait
 * is measured and counted in a histogram of its thread.
 *
 * Threads are those of followed processes: named by user space, or descendants of these, or of user space itself. A thread is
 * known by its TID and start time, so a thread that reuses a TID is distinguished. Its row stays after its end until user space
 * has read it.
 */
#include "kernel.h"
#include "latency.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct latency_settings settings;
struct latency_control control;

/* Followed processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct thread_key);
	__type(value, struct thread_waits);
} threads SEC(".maps");

/* Initial row: too large for the stack. */
static const struct thread_waits blank;

static __always_inline bool is_followed(u32 tgid)
{
	return settings.everyone || bpf_map_lookup_elem(&processes, &tgid);
}

/* Row of a followed thread; made if there is none. */
static __always_inline struct thread_waits *row_of(struct task_struct *p)
{
	struct thread_key key = { .started_ns = p->start_time, .tid = p->pid, .tgid = p->tgid };
	struct thread_waits *row;

	if (!key.tid || !is_followed(key.tgid))
		return NULL;
	row = bpf_map_lookup_elem(&threads, &key);
	if (row)
		return row;
	if (bpf_map_update_elem(&threads, &key, &blank, BPF_NOEXIST))
		__sync_fetch_and_add(&control.missed, 1);
	return bpf_map_lookup_elem(&threads, &key);
}

static __always_inline u32 bucket_of(u64 ns)
{
	u64 value = ns >> GRAIN_BITS;
	u32 bit = 0;

	if (value < (1 << SUB_BITS))
		return value;
	if (value >> VALUE_BITS)
		return BUCKETS - 1;
#pragma clang loop unroll(disable)
	while (bit < VALUE_BITS && value >> bit > 1)
		bit++;
	return ((bit - SUB_BITS + 1) << SUB_BITS) + ((value >> (bit - SUB_BITS)) & ((1 << SUB_BITS) - 1));
}

static __always_inline void begin(struct thread_waits *row, u32 reason)
{
	if (!row)
		return;
	row->reason = reason;
	row->since_ns = bpf_ktime_get_ns();
}

static __always_inline void end(struct thread_waits *row)
{
	u32 reason, bucket, octave;
	u64 waited, now;

	if (!row || !row->since_ns)
		return;
	now = bpf_ktime_get_ns();
	/* Clocks of CPUs may differ by some nanoseconds. */
	waited = now > row->since_ns ? now - row->since_ns : 0;
	row->since_ns = 0;
	reason = row->reason & 1;
	bucket = bucket_of(waited);
	octave = bucket / SUBS;
	/* The verifier must see the bound of the index, whatever the compiler knows. */
	barrier_var(octave);
	if (octave >= OCTAVES)
		return;
	row->buckets[reason][octave][bucket % SUBS]++;
	row->total_ns[reason] += waited;
	if (waited > row->longest_ns)
		row->longest_ns = waited;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	struct thread_waits *row = row_of(p);

	/* A thread that waits already continues that wait. */
	if (row && !row->since_ns)
		begin(row, WOKEN);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_fork, struct task_struct *child)
{
	u32 parent = bpf_get_current_pid_tgid() >> 32, tgid = child->tgid, yes = 1;

	if (tgid != parent && (parent == settings.ancestor || is_followed(parent)))
		bpf_map_update_elem(&processes, &tgid, &yes, 0);
	begin(row_of(child), WOKEN);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	struct thread_waits *row = row_of(prev);

	/* A wake-up of a thread that ran all the time ends here, whatever comes next. */
	if (row && (preempt || !state))
		begin(row, PREEMPTED);
	else if (row)
		row->since_ns = 0;
	if (row && state & TASK_DEAD) {
		bpf_probe_read_kernel_str(row->name, sizeof(row->name), prev->comm);
		row->ended = 1;
	}
	end(row_of(next));
	return 0;
}

/* Removes a PID, which another process may reuse from now on. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *p)
{
	u32 tgid = p->tgid;

	if (p->pid == tgid)
		bpf_map_delete_elem(&processes, &tgid);
	return 0;
}
