/* SPDX-License-Identifier: GPL-2.0 */
/* Commands of user space: programs that it runs through the bpf system call, one at a time. */
#pragma once

/* Makes a thread one of a program of the workload. */
static __always_inline void follow(struct thread *t, u32 program)
{
	if (!t->followed)
		__sync_fetch_and_add(&counters.followed, 1);
	t->program = program;
	t->followed = true;
}

static __always_inline bool is_on(struct target *target, u32 cpu)
{
	struct bpf_cpumask *mask = target->mask;

	return mask && bpf_cpumask_test_cpu(cpu, cpus_of(mask));
}

/* Gives a thread a target; a thread that runs elsewhere is taken off its CPU. */
static __always_inline s32 place(struct task_struct *p, struct thread *t, struct command *c)
{
	struct target *target = target_at(c->target);
	struct bpf_cpumask *mask;
	s32 cpu;

	if (!target || !target->known)
		return -EINVAL;
	if (!t->followed)
		return -ESRCH;
	settle(t, c->target);
	if (c->weight)
		t->weight = c->weight;
	if (c->slice_ns)
		t->slice_ns = c->slice_ns;
	bpf_rcu_read_lock();
	mask = target->mask;
	c->on_target = mask && bpf_cpumask_intersects(cpus_of(mask), p->cpus_ptr);
	cpu = scx_bpf_task_cpu(p);
	if (c->on_target && scx_bpf_task_running(p) && !is_on(target, cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	bpf_rcu_read_unlock();
	return 0;
}

/* Removes a thread from its program: it may run anywhere. */
static __always_inline void detach(struct thread *t)
{
	if (t->followed)
		__sync_fetch_and_add(&counters.followed, -1);
	t->followed = false;
	settle(t, TARGET_ANYWHERE);
	t->weight = 0;
	t->slice_ns = 0;
	t->metric_q16 = 0;
}

static __always_inline void obey(struct command *c)
{
	struct task_struct *p = bpf_task_from_pid(c->tid);
	struct thread *t;

	c->result = -ESRCH;
	if (!p)
		return;
	/* A thread that has exited has no storage any more. */
	t = thread_of(p);
	if (t) {
		c->result = 0;
		c->old_target = t->target;
		c->cpu = scx_bpf_task_cpu(p);
		c->runnable = p->scx.flags & SCX_TASK_QUEUED;
		c->nice = p->static_prio - DEFAULT_PRIO;
		c->nr_allowed = p->nr_cpus_allowed;
		if (c->kind == COMMAND_ATTACH)
			follow(t, c->program);
		else if (c->kind == COMMAND_PLACE)
			c->result = place(p, t, c);
		else if (c->kind == COMMAND_DETACH)
			detach(t);
		else if (c->kind == COMMAND_GIVE_METRIC)
			t->metric_q16 = c->metric_q16;
		c->metric_q16 = factor_of(p);
	}
	bpf_task_release(p);
}

SEC("syscall")
int obey_commands(void *ctx)
{
	u32 i;

	bpf_for(i, 0, nr_commands) {
		if (i >= MAX_COMMANDS)
			break;
		obey(&commands[i]);
	}
	return 0;
}

static __always_inline bool is_defined(u32 cpu)
{
	return definition.cpus[BOUNDED(cpu / 64, CPU_WORDS)] >> (cpu % 64) & 1;
}

/* Makes `definition` a target, if each of its CPUs can serve one more. */
SEC("syscall")
int define_target(void *ctx)
{
	struct target *target = target_at(definition.target);
	struct bpf_cpumask *mask, *old;
	struct served *served;
	u32 cpu, online = 0;

	definition.result = -EINVAL;
	if (!target)
		return 0;
	definition.result = -ENOSPC;
	bpf_for(cpu, 0, settings.nr_cpus) {
		served = is_defined(cpu) ? served_by(cpu) : NULL;
		if (served && served->count >= MAX_CPU_QUEUES)
			return 0;
	}
	definition.result = -ENOMEM;
	mask = bpf_cpumask_create();
	if (!mask)
		return 0;
	bpf_for(cpu, 0, settings.nr_cpus) {
		served = is_defined(cpu) ? served_by(cpu) : NULL;
		if (!served)
			continue;
		bpf_cpumask_set_cpu(cpu, mask);
		served->targets[BOUNDED(served->count, MAX_CPU_QUEUES)] = definition.target;
		__sync_fetch_and_add(&served->count, 1);
		online += served->online;
	}
	target->online = online;
	target->known = true;
	target->used_ns = bpf_ktime_get_ns();
	old = bpf_kptr_xchg(&target->mask, mask);
	if (old)
		bpf_cpumask_release(old);
	definition.result = 0;
	return 0;
}

/* Makes a CPU stop serving a queue. The last queue takes its place, so that a reader misses none meanwhile. */
static __always_inline void stop_serving(struct served *served, u32 id)
{
	u32 i, last = served->count - 1;

	bpf_for(i, 0, MAX_CPU_QUEUES) {
		if (i > last || served->targets[BOUNDED(i, MAX_CPU_QUEUES)] != id)
			continue;
		served->targets[BOUNDED(i, MAX_CPU_QUEUES)] = served->targets[BOUNDED(last, MAX_CPU_QUEUES)];
		__sync_fetch_and_add(&served->count, -1);
		return;
	}
}

SEC("syscall")
int sweep_target(void *ctx)
{
	sweep(QUEUE_OF_TARGET + definition.target);
	return 0;
}

/*
 * Retires a target that no thread has, or has had for a sampling period. A thread that is just being created, or being placed,
 * may be about to get it.
 */
SEC("syscall")
int retire_target(void *ctx)
{
	u32 id = definition.target, cpu;
	struct target *target = target_at(id);
	struct bpf_cpumask *old;
	struct served *served;

	definition.result = -EBUSY;
	if (!target || !target->known || target->users || bpf_ktime_get_ns() - target->used_ns < control.period_ns)
		return 0;
	/* Threads that still wait there have another target by now. */
	sweep(QUEUE_OF_TARGET + id);
	if (scx_bpf_dsq_nr_queued(QUEUE_OF_TARGET + id))
		return 0;
	target->known = false;
	target->online = 0;
	bpf_for(cpu, 0, settings.nr_cpus) {
		served = served_by(cpu);
		if (served && served->count)
			stop_serving(served, id);
	}
	old = bpf_kptr_xchg(&target->mask, NULL);
	if (old)
		bpf_cpumask_release(old);
	definition.result = 0;
	return 0;
}
