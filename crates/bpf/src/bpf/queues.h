/* SPDX-License-Identifier: GPL-2.0 */
/* Queues in which threads wait: that of their target, or that of a CPU if their affinity mask does not cover the target. */
#pragma once

/* Claims an idle CPU of a target. */
static __always_inline s32 pick_idle(u32 id)
{
	struct target *target = target_at(id);
	struct bpf_cpumask *mask = target ? target->mask : NULL;

	return mask ? scx_bpf_pick_idle_cpu(cpus_of(mask), 0) : -1;
}

/* Stores that a thread waits in a CPU's own queue, after it has been queued. */
static __always_inline void expect_own(s32 cpu)
{
	struct served *served = served_by(cpu);

	if (served)
		__sync_lock_test_and_set(&served->own, 1);
}

static __always_inline bool is_online(s32 cpu)
{
	struct served *served = served_by(cpu);

	return served && served->online;
}

/* Online CPU of the mask that the thread may use; or an error. */
static __always_inline s32 usable_cpu(struct task_struct *p, const struct cpumask *mask)
{
	s32 cpu = bpf_cpumask_any_and_distribute(mask, p->cpus_ptr);

	if (is_online(cpu))
		return cpu;
	bpf_for(cpu, 0, settings.nr_cpus) {
		if (is_online(cpu) && bpf_cpumask_test_cpu(cpu, mask) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return cpu;
	}
	return -EBUSY;
}

/* Queue of a thread that may not use all CPUs of its target: that of one CPU that it may use. */
static __always_inline u32 queue_for_narrow(struct task_struct *p, const struct bpf_cpumask *mask)
{
	s32 cpu = scx_bpf_task_cpu(p), other = -EBUSY;
	bool stays = is_online(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);

	if (stays && mask && bpf_cpumask_test_cpu(cpu, cpus_of(mask)))
		return QUEUE_OF_CPU + cpu;
	if (mask)
		other = usable_cpu(p, cpus_of(mask));
	if (other < 0 && !stays)
		other = usable_cpu(p, p->cpus_ptr);
	return QUEUE_OF_CPU + BOUNDED(other >= 0 ? other : cpu, MAX_CPUS);
}

/* Queue in which a thread is to wait. */
static __always_inline u32 queue_of(struct task_struct *p, const struct thread *t)
{
	u32 id = target_of(t);
	struct target *target = target_at(id);
	struct bpf_cpumask *mask = target ? target->mask : NULL;

	if (mask && bpf_cpumask_subset(cpus_of(mask), p->cpus_ptr))
		return QUEUE_OF_TARGET + id;
	return queue_for_narrow(p, mask);
}

/* Moves threads that wait in a queue and have another target by now. */
static __always_inline void sweep(u32 from)
{
	struct task_struct *p;
	struct thread *t;
	u64 *clock;
	u32 to;
	s32 cpu;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, from, 0) {
		t = thread_of(p);
		if (!t)
			continue;
		to = queue_of(p, t);
		if (is_queue_of_cpu(to) && !is_online(to - QUEUE_OF_CPU)) {
			/* Its affinity mask has no online CPU: the kernel, which empties this one, gives it others. */
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p), 0);
			continue;
		}
		clock = clock_of(to);
		if (to == from || !clock)
			continue;
		t->vtime = *clock;
		t->queue = to;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->vtime);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0))
			__sync_fetch_and_add(&counters.moved, 1);
		cpu = to - QUEUE_OF_CPU;
		if (is_queue_of_cpu(to))
			expect_own(cpu);
		else
			cpu = pick_idle(to - QUEUE_OF_TARGET);
		if (cpu >= 0)
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	bpf_rcu_read_unlock();
}
