// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler: enforces placements that user space decides. Threads are counted by follow.bpf.c, independently.
 *
 * A target is a set of CPUs with one queue, ordered by virtual time. A thread waits in its target's queue. A CPU serves the
 * queues of all targets that it belongs to round-robin, and one of its own. There threads wait whose affinity mask does not let
 * them run on all of their target. Such affinity always takes precedence over a placement, and so do kernel threads.
 *
 * Followed threads belong to a program of the workload, and so do their children. Commands of user space are in commands.h.
 */
#include "kernel.h"
#include "shared.h"

char LICENSE[] SEC("license") = "GPL";

#include "state.h"
#include "metrics.h"
#include "alarm.h"
#include "queues.h"
#include "admission.h"
#include "commands.h"

/* True for kernel threads that are tied to a CPU. They come first: the whole machine depends on them. */
static __always_inline bool is_tied(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/* Claims an idle CPU of the mask that the thread may use, or returns an error. */
static __always_inline s32 select_in(struct task_struct *p, s32 prev, u64 flags, const struct cpumask *mask)
{
	struct scx_bpf_select_cpu_and_args args = { .prev_cpu = prev, .wake_flags = flags };

	if (bpf_ksym_exists(__scx_bpf_select_cpu_and))
		return __scx_bpf_select_cpu_and(p, mask, &args);
	return scx_bpf_select_cpu_and(p, prev, flags, mask, 0);
}

static __always_inline void insert(struct task_struct *p, u64 queue, u64 slice, u64 vtime, u64 flags)
{
	struct scx_bpf_dsq_insert_vtime_args args = {
		.dsq_id = queue, .slice = slice, .vtime = vtime, .enq_flags = flags
	};

	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime))
		__scx_bpf_dsq_insert_vtime(p, &args);
	else
		scx_bpf_dsq_insert_vtime(p, queue, slice, vtime, flags);
}

SEC("struct_ops/engine_select_cpu")
s32 BPF_PROG(engine_select_cpu, struct task_struct *p, s32 prev, u64 flags)
{
	struct thread *t = thread_of(p);
	struct target *target;
	struct bpf_cpumask *mask;
	bool idle = false;
	s32 cpu;

	if (t)
		admit_waking(p, t);
	target = t ? target_at(target_of(t)) : NULL;
	mask = target ? target->mask : NULL;
	if (!mask || is_tied(p) || !bpf_cpumask_intersects(cpus_of(mask), p->cpus_ptr)) {
		cpu = scx_bpf_select_cpu_dfl(p, prev, flags, &idle);
		if (idle)
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, t ? slice_of(t) : settings.slice_ns, 0);
		return cpu;
	}
	if (t->target == settings.drop_target)
		return prev;
	cpu = select_in(p, prev, flags, cpus_of(mask));
	if (cpu >= 0) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(t), 0);
		return cpu;
	}
	if (bpf_cpumask_test_cpu(prev, cpus_of(mask)))
		return prev;
	cpu = bpf_cpumask_any_and_distribute(cpus_of(mask), p->cpus_ptr);
	return cpu < (s32)settings.nr_cpus ? cpu : prev;
}

/* Takes a thread from a CPU's own queue, which is checked only if a thread waits there, which is rare. */
static __always_inline bool take_own(struct served *served, s32 cpu)
{
	if (!served->own)
		return false;
	__sync_lock_test_and_set(&served->own, 0);
	if (!scx_bpf_dsq_move_to_local(QUEUE_OF_CPU + cpu))
		return false;
	/* There may be more. */
	__sync_lock_test_and_set(&served->own, 1);
	return true;
}

/*
 * Queue position of a thread that wakes, relative to its queue's clock. `ahead` is the part of its share that it has used in
 * advance, at most two time slices. The first thread that wakes during a time slice is placed one slice earlier. It then waits
 * for this slice to end, but for no thread that owes nothing. All others queue like a thread that has just had a slice. If all
 * were placed first, each would have its CPU for next to no time, and all would switch constantly.
 */
static __always_inline s64 place_of_woken(struct task_struct *p, s64 *ahead)
{
	s64 slice = settings.slice_ns;

	if (*ahead > 2 * slice)
		*ahead = 2 * slice;
	if (claim_favour(scx_bpf_task_cpu(p)))
		return *ahead - slice;
	return *ahead > slice ? *ahead : slice;
}

/* Puts a thread into a queue, at its place by virtual time. Sleep gives no credit. */
static __always_inline void queue_up(struct task_struct *p, struct thread *t, u32 queue, u64 flags)
{
	u64 *clock = clock_of(queue), now = clock ? *clock : 0;
	s64 ahead = t->queue == queue ? t->vtime - now : 0, place;

	if (ahead < 0)
		ahead = 0;
	place = flags & SCX_ENQ_WAKEUP ? place_of_woken(p, &ahead) : ahead;
	t->queue = queue;
	t->vtime = now + ahead;
	insert(p, queue, slice_of(t), now + place, flags);
	if (is_queue_of_cpu(queue))
		expect_own(queue - QUEUE_OF_CPU);
}

/* True if more threads wait than a target's own CPUs should have to serve. */
static __always_inline bool is_backlog(u32 id)
{
	u32 above = control.steal_above;

	return above != NONE && scx_bpf_dsq_nr_queued(QUEUE_OF_TARGET + id) > (s32)above;
}

/* Wakes a CPU for a queue that is about to get longer; if all are busy, one of them will be free when its time slice ends. */
static __always_inline void find_server(u32 id, s32 own)
{
	struct target *target = target_at(id);
	struct bpf_cpumask *mask = target ? target->mask : NULL;
	s32 cpu = pick_idle(id);

	if (cpu < 0 && id != TARGET_ANYWHERE && is_backlog(id))
		cpu = pick_idle(TARGET_ANYWHERE);
	if (cpu >= 0) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (mask && !bpf_cpumask_test_cpu(own, cpus_of(mask)))
		own = bpf_cpumask_any_distribute(cpus_of(mask));
	set_alarm(own);
}

SEC("struct_ops/engine_enqueue")
void BPF_PROG(engine_enqueue, struct task_struct *p, u64 flags)
{
	struct thread *t = thread_of(p);
	u32 queue, cpu = scx_bpf_task_cpu(p);

	if (!t || is_tied(p)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, settings.slice_ns, flags);
		return;
	}
	if (t->target == settings.drop_target)
		return;
	queue = queue_of(p, t);
	if (queue == QUEUE_OF_CPU + cpu && !is_online(cpu)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(t), flags);
		return;
	}
	queue_up(p, t, queue, flags);
	if (is_queue_of_cpu(queue)) {
		scx_bpf_kick_cpu(queue - QUEUE_OF_CPU, SCX_KICK_IDLE);
		set_alarm(queue - QUEUE_OF_CPU);
	} else {
		find_server(queue - QUEUE_OF_TARGET, cpu);
	}
}

/* Takes a thread from another target's backlog. */
static __always_inline bool steal(s32 cpu)
{
	struct target *target;
	u32 id;

	bpf_for(id, 0, control.nr_targets) {
		target = target_at(id);
		if (!target || is_on(target, cpu) || !is_backlog(id))
			continue;
		if (scx_bpf_dsq_move_to_local(QUEUE_OF_TARGET + id)) {
			__sync_fetch_and_add(&counters.stolen, 1);
			return true;
		}
	}
	return false;
}

/* Adds the running time since the last call to a thread's virtual time. */
static __always_inline void charge(const struct task_struct *p, struct thread *t, u64 now)
{
	/* The kernel's weights are 100 for nice 0. */
	u64 weight = t->weight ? t->weight : p->scx.weight * 1024 / 100;

	t->vtime += (now - t->started_ns) * 1024 / (weight ? weight : 1);
}

/* Begins a time slice of a thread. */
static __always_inline void begin_slice(struct thread *t, u32 cpu, u64 now)
{
	u64 *clock = clock_of(t->queue);

	t->started_ns = now;
	note_slice(cpu, now + slice_of(t));
	if (clock && (s64)(t->vtime - *clock) > 0)
		*clock = t->vtime;
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/* True if the thread that runs on a CPU may stay there. */
static __always_inline bool belongs_on(struct task_struct *p, const struct thread *t, s32 cpu)
{
	struct target *target;
	u32 queue;

	if (!t || is_tied(p))
		return true;
	if (t->target == settings.drop_target)
		return false;
	queue = queue_of(p, t);
	if (is_queue_of_cpu(queue))
		return queue == QUEUE_OF_CPU + cpu;
	target = target_at(queue - QUEUE_OF_TARGET);
	return target && is_on(target, cpu);
}

/*
 * Gives the running thread another time slice, if it may stay and no other thread wants this CPU. That takes no context switch.
 * If it got into a queue instead, the kernel would switch to the idle thread and back.
 */
static __always_inline void keep_running(struct task_struct *p, s32 cpu)
{
	struct thread *t = thread_of(p);
	u64 now = scx_bpf_now();

	if (!(p->scx.flags & SCX_TASK_QUEUED) || !belongs_on(p, t, cpu))
		return;
	set_slice(p, t ? slice_of(t) : settings.slice_ns);
	if (!t || !t->started_ns)
		return;
	charge(p, t, now);
	begin_slice(t, cpu, now);
}

SEC("struct_ops/engine_dispatch")
void BPF_PROG(engine_dispatch, s32 cpu, struct task_struct *prev)
{
	struct served *served = served_by(cpu);
	u32 i, turn, count;
	bool took;

	if (!served)
		return;
	count = served->count < MAX_CPU_QUEUES ? served->count : MAX_CPU_QUEUES;
	bpf_for(i, 0, count + 1) {
		/* The last in the round is the CPU's own queue. */
		turn = (served->next + i) % (count + 1);
		if (turn < count)
			took = scx_bpf_dsq_move_to_local(QUEUE_OF_TARGET + served->targets[BOUNDED(turn, MAX_CPU_QUEUES)]);
		else
			took = take_own(served, cpu);
		if (took) {
			served->next = turn + 1;
			return;
		}
	}
	if (control.steal_above != NONE && steal(cpu))
		return;
	if (prev)
		keep_running(prev, cpu);
}

SEC("struct_ops/engine_running")
void BPF_PROG(engine_running, struct task_struct *p)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct thread *t = thread_of(p);

	if (!t)
		return;
	begin_slice(t, cpu, scx_bpf_now());
	t->came_ns = t->started_ns;
	if (t->followed && t->cpu != cpu && settings.report_switches)
		report(p, t, EVENT_MIGRATE, t->cpu, cpu);
	t->cpu = cpu;
}

SEC("struct_ops/engine_stopping")
void BPF_PROG(engine_stopping, struct task_struct *p, bool runnable)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct thread *t = thread_of(p);
	u64 now = scx_bpf_now();

	if (!t || !t->started_ns)
		return;
	charge(p, t, now);
	t->started_ns = 0;
	note_slice(cpu, 0);
	if (t->followed && control.report_spans)
		report_ran(p, t, EVENT_SWITCH, 0, cpu, now - t->came_ns);
}

/* These two exist only if switches are reported. */
SEC("struct_ops/engine_runnable")
void BPF_PROG(engine_runnable, struct task_struct *p, u64 flags)
{
	struct thread *t = flags & SCX_ENQ_WAKEUP ? followed_thread_of(p) : NULL;

	if (t)
		report(p, t, EVENT_WAKE, 0, 0);
}

SEC("struct_ops/engine_quiescent")
void BPF_PROG(engine_quiescent, struct task_struct *p, u64 flags)
{
	struct thread *t = flags & SCX_DEQ_SLEEP ? followed_thread_of(p) : NULL;

	if (t)
		report(p, t, EVENT_SLEEP, 0, 0);
}

/* Adds a new thread to its parent's program. */
SEC("struct_ops.s/engine_init_task")
s32 BPF_PROG(engine_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE), *parent;

	if (!t)
		return -ENOMEM;
	t->cpu = scx_bpf_task_cpu(p);
	if (!args->fork)
		return 0;
	parent = followed_thread_of(bpf_get_current_task_btf());
	if (!parent)
		return 0;
	t->weight = parent->weight;
	t->slice_ns = parent->slice_ns;
	follow(t, parent->program);
	settle(t, parent->target);
	/* If the parent has left the target meanwhile, it may have been retired before this thread was counted. */
	settle(t, *(volatile u32 *)&parent->target);
	admit_new(t);
	return 0;
}

/*
 * Reports the fork. Only from now on other threads can find the thread by its TID, so an earlier report would be of no use to
 * user space.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(engine_fork, struct task_struct *parent, struct task_struct *p)
{
	struct thread *t = followed_thread_of(p);

	if (t)
		report(p, t, EVENT_NEW, 0, t->cpu);
	return 0;
}

SEC("struct_ops/engine_exit_task")
void BPF_PROG(engine_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct thread *t = thread_of(p);

	if (t)
		settle(t, TARGET_ANYWHERE);
	forget_factor(p);
	if (t && t->followed) {
		report(p, t, EVENT_EXIT, 0, 0);
		__sync_fetch_and_add(&counters.followed, -1);
	}
	/* Commands for a thread that has exited find nothing to change. */
	bpf_task_storage_delete(&threads, p);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(engine_exec, struct task_struct *p, s32 old_pid, struct linux_binprm *image)
{
	struct thread *t = followed_thread_of(p);

	if (t)
		report(p, t, EVENT_EXEC, old_pid, 0);
	return 0;
}

/* Updates the targets' numbers of online CPUs. */
static __always_inline void set_online(s32 cpu, bool online)
{
	struct served *served = served_by(cpu);
	struct target *target;
	u32 id;

	if (!served || served->online == online)
		return;
	served->online = online;
	/* The kernel requests no more threads for an offline CPU: those that wait for it go elsewhere. */
	if (!online)
		sweep(QUEUE_OF_CPU + cpu);
	bpf_for(id, 0, control.nr_targets) {
		target = target_at(id);
		if (!target || !is_on(target, cpu))
			continue;
		target->online += online ? 1 : -1;
		/* That was its last CPU: waiting threads go to other CPUs. */
		if (!target->online)
			sweep(QUEUE_OF_TARGET + id);
	}
}

SEC("struct_ops/engine_cpu_online")
void BPF_PROG(engine_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

SEC("struct_ops/engine_cpu_offline")
void BPF_PROG(engine_cpu_offline, s32 cpu)
{
	set_online(cpu, false);
}

SEC("struct_ops.s/engine_init")
s32 BPF_PROG(engine_init)
{
	u32 i;
	s32 error = 0;

	bpf_for(i, 0, MAX_TARGETS) {
		error = scx_bpf_create_dsq(QUEUE_OF_TARGET + i, -1);
		if (error)
			return error;
	}
	bpf_for(i, 0, settings.nr_cpus) {
		error = scx_bpf_create_dsq(QUEUE_OF_CPU + i, -1);
		if (error)
			return error;
	}
	return prepare_alarms();
}

SEC("struct_ops/engine_exit")
void BPF_PROG(engine_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_reason, sizeof(exit_reason), info->reason);
	bpf_probe_read_kernel_str(exit_message, sizeof(exit_message), info->msg);
	counters.exit_kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops engine = {
	.select_cpu = (void *)engine_select_cpu,
	.enqueue = (void *)engine_enqueue,
	.dispatch = (void *)engine_dispatch,
	.runnable = (void *)engine_runnable,
	.running = (void *)engine_running,
	.stopping = (void *)engine_stopping,
	.quiescent = (void *)engine_quiescent,
	.init_task = (void *)engine_init_task,
	.exit_task = (void *)engine_exit_task,
	.cpu_online = (void *)engine_cpu_online,
	.cpu_offline = (void *)engine_cpu_offline,
	.init = (void *)engine_init,
	.exit = (void *)engine_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.name = "countersteer",
};
