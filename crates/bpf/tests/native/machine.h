/* SPDX-License-Identifier: GPL-2.0 */
/* Core of the kernel's scheduler as far as sched_ext shows it: the order of callbacks, and the places of threads meanwhile. */
#pragma once

static void reschedule(s32 cpu);

/* Accounts for the time since the last call, for the thread that runs on a CPU. */
static void account(s32 cpu)
{
	struct cpu *c = &cpus[cpu];
	struct task *t = c->current;
	u64 ran = now_ns - c->since;

	c->since = now_ns;
	if (!t)
		return;
	t->slice -= ran < t->slice ? ran : t->slice;
}

static void account_all(void)
{
	for (s32 cpu = 0; cpu < CPUS; cpu++)
		account(cpu);
}

/* Queues a runnable thread. */
static void enqueue(struct task *t, u64 flags)
{
	t->state = WAITING;
	if (!t->waits_since)
		t->waits_since = now_ns;
	if (!t->inserted)
		CALL(ENQUEUE, draw(CPUS), t, engine_enqueue(&t->task, flags));
	if (!t->inserted)
		return;
	t->inserted = false;
	/* Threads that select_cpu put into a local queue go to that of the CPU that it chose. */
	put_in(t->chosen->local ? &cpus[t->cpu].local : t->chosen, t, false);
	if (t->chosen->local && !cpus[t->cpu].current)
		cpus[t->cpu].kicked = true;
}

/* Finds an online CPU that the thread may use; an affinity mask without one is reset. */
static void find_cpu(struct task *t)
{
	u64 usable = t->allowed.bits[0] & online_bits();

	if (!usable) {
		t->allowed.bits[0] = (1ULL << CPUS) - 1;
		t->task.nr_cpus_allowed = CPUS;
		usable = online_bits();
	}
	if (!(usable >> t->cpu & 1))
		t->cpu = any_of(usable);
}

static void wake(struct task *t)
{
	s32 cpu;

	if (t->state != ASLEEP)
		return;
	find_cpu(t);
	t->task.scx.flags |= SCX_TASK_QUEUED;
	CALL(SELECT, draw(CPUS), t, cpu = engine_select_cpu(&t->task, t->cpu, SCX_ENQ_WAKEUP));
	must(cpu >= 0 && cpu < CPUS, "select_cpu chose CPU %d", cpu);
	if ((t->allowed.bits[0] & online_bits()) >> cpu & 1)
		t->cpu = cpu;
	CALL(OTHER, draw(CPUS), t, engine_runnable(&t->task, SCX_ENQ_WAKEUP));
	enqueue(t, SCX_ENQ_WAKEUP);
	/* A CPU that was claimed as idle looks for work. */
	if (!cpus[cpu].current)
		cpus[cpu].kicked = true;
}

static void start(s32 cpu, struct task *t)
{
	struct cpu *c = &cpus[cpu];

	account(cpu);
	take_out(t);
	must(t->allowed.bits[0] >> cpu & 1, "thread %d runs on CPU %d, which its affinity excludes", t->task.pid, cpu);
	must(c->online, "thread %d runs on CPU %d, which is offline", t->task.pid, cpu);
	c->current = t;
	c->idle = false;
	t->cpu = cpu;
	t->state = RUNNING;
	t->waits_since = 0;
	t->came_ns = now_ns;
	t->slice = t->next_slice ? t->next_slice : SLICE_NS;
	CALL(OTHER, cpu, t, engine_running(&t->task));
}

static void stop(s32 cpu, bool runnable)
{
	struct task *t = cpus[cpu].current;

	account(cpu);
	CALL(OTHER, cpu, t, engine_stopping(&t->task, runnable));
	cpus[cpu].current = NULL;
	t->state = WAITING;
}

/* Takes the time slice that dispatch gave to the running thread. */
static bool take_slice(struct task *t)
{
	t->slice = t->task.scx.slice;
	t->task.scx.slice = 0;
	return t->slice;
}

/* Chooses the next thread on a CPU. */
static void reschedule(s32 cpu)
{
	struct cpu *c = &cpus[cpu];
	struct task *before = c->current;

	c->kicked = false;
	if (!c->online)
		return;
	if (before && before->slice)
		return;
	if (!c->local.nr)
		CALL(DISPATCH, cpu, before, engine_dispatch(cpu, before ? &before->task : NULL));
	if (before && take_slice(before)) {
		must(!c->local.nr, "thread %d keeps a CPU that another one was chosen for", before->task.pid);
		must(before->allowed.bits[0] >> cpu & 1, "thread %d keeps CPU %d, which its affinity excludes", before->task.pid, cpu);
		kept++;
		return;
	}
	if (before) {
		stop(cpu, true);
		enqueue(before, c->local.nr ? 0 : SCX_ENQ_LAST);
	}
	if (c->local.nr)
		start(cpu, c->local.tasks[0]);
	else
		c->idle = true;
}

/* Lets all CPUs that were kicked look for work. */
static void settle_down(void)
{
	for (u32 round = 0; round < 100; round++) {
		bool again = false;

		for (s32 cpu = 0; cpu < CPUS; cpu++) {
			bool starved = cpus[cpu].online && !cpus[cpu].current && cpus[cpu].local.nr;

			if (!cpus[cpu].kicked && !starved)
				continue;
			again = true;
			reschedule(cpu);
		}
		if (!again)
			return;
	}
	fail("CPUs are kicked without end");
}

static void sleep_now(struct task *t)
{
	s32 cpu = t->cpu;

	if (t->state != RUNNING)
		return;
	stop(cpu, false);
	t->state = ASLEEP;
	t->task.scx.flags &= ~SCX_TASK_QUEUED;
	CALL(OTHER, cpu, t, engine_quiescent(&t->task, SCX_DEQ_SLEEP));
	reschedule(cpu);
}

static void set_affinity(struct task *t, u64 bits)
{
	enum state state = t->state;
	s32 cpu = t->cpu;

	if (state == RUNNING)
		stop(cpu, true);
	take_out(t);
	t->allowed.bits[0] = bits;
	t->task.nr_cpus_allowed = __builtin_popcountll(bits);
	find_cpu(t);
	if (state == ASLEEP)
		return;
	if (state == RUNNING && t->cpu == cpu)
		start(cpu, t);
	else
		enqueue(t, 0);
	if (state == RUNNING && t->cpu != cpu)
		reschedule(cpu);
}

/* Creates a thread; `parent` is NULL for those that exist when the scheduler starts. */
static struct task *fork_from(struct task *parent)
{
	struct scx_init_task_args args = { .fork = parent };
	struct task *t = tasks;
	s32 error;

	while (t < tasks + crowd && t->state != DEAD)
		t++;
	if (t == tasks + crowd)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->task.pid = t - tasks + 1;
	t->task.tgid = parent ? parent->task.tgid : t->task.pid;
	t->task.static_prio = DEFAULT_PRIO;
	t->task.scx.weight = 100;
	t->task.cpus_ptr = cpus_of(&t->allowed);
	t->allowed.bits[0] = parent ? parent->allowed.bits[0] : (1ULL << CPUS) - 1;
	t->task.nr_cpus_allowed = __builtin_popcountll(t->allowed.bits[0]);
	t->cpu = parent ? parent->cpu : draw(CPUS);
	op_current = parent;
	CALL(UNLOCKED, t->cpu, t, error = engine_init_task(&t->task, &args));
	op_current = NULL;
	if (error) {
		free(t->thread);
		t->thread = NULL;
		return NULL;
	}
	t->state = ASLEEP;
	if (parent)
		CALL(OTHER, parent->cpu, parent, engine_fork(&parent->task, &t->task));
	return t;
}

static void end(struct task *t)
{
	struct scx_exit_task_args args = {};
	s32 cpu = t->cpu;
	bool running = t->state == RUNNING;

	if (running) {
		stop(cpu, false);
		CALL(OTHER, cpu, t, engine_quiescent(&t->task, 0));
	}
	take_out(t);
	CALL(OTHER, draw(CPUS), t, engine_exit_task(&t->task, &args));
	must(!t->factor && !t->thread, "something of thread %d stays", t->task.pid);
	/* User space may still find it by its TID. */
	commands[0] = (struct command){ .tid = t->task.pid, .kind = COMMAND_ATTACH };
	nr_commands = 1;
	CALL(SYSCALL, draw(CPUS), NULL, obey_commands(NULL));
	must(commands[0].result == -ESRCH, "thread %d is attached to after its exit", t->task.pid);
	memset(t, 0, sizeof(*t));
	if (running)
		reschedule(cpu);
}

/*
 * Takes a CPU offline. The kernel calls dispatch no more on it: threads that wait elsewhere than in its local queue stay there.
 */
static void go_offline(s32 cpu)
{
	struct cpu *c = &cpus[cpu];
	struct task *t;

	if (!c->online || !(online_bits() & ~(1ULL << cpu)))
		return;
	c->online = false;
	c->idle = false;
	CALL(UNLOCKED, draw(CPUS), NULL, engine_cpu_offline(cpu));
	if (c->current) {
		t = c->current;
		stop(cpu, true);
		find_cpu(t);
		enqueue(t, 0);
	}
	while (c->local.nr) {
		t = c->local.tasks[0];
		take_out(t);
		find_cpu(t);
		enqueue(t, 0);
	}
}

static void go_online(s32 cpu)
{
	if (cpus[cpu].online)
		return;
	cpus[cpu].online = true;
	cpus[cpu].since = now_ns;
	CALL(UNLOCKED, cpu, NULL, engine_cpu_online(cpu));
	cpus[cpu].kicked = true;
}

static void fire(u32 row)
{
	u32 key = row;

	timers[row].due = 0;
	CALL(TIMER, timers[row].cpu, NULL, go_off(&alarms, &key, &stored_alarms[row]));
}

static void tick(s32 cpu)
{
	struct task *t = cpus[cpu].current;

	if (!t)
		return;
	account(cpu);
	if (!t->slice)
		reschedule(cpu);
}

/* Lets time pass: timers at their times, ticks every four milliseconds. */
static void pass(u64 ns)
{
	u64 until = now_ns + ns;

	while (now_ns < until) {
		u64 next = (now_ns / (4 * MS) + 1) * 4 * MS;

		for (u32 row = 0; row < CPUS; row++)
			if (timers[row].due && timers[row].due < next)
				next = timers[row].due > now_ns ? timers[row].due : now_ns;
		if (next > until)
			next = until;
		now_ns = next;
		account_all();
		for (u32 row = 0; row < CPUS; row++)
			if (timers[row].due && timers[row].due <= now_ns)
				fire(row);
		if (now_ns % (4 * MS) == 0)
			for (s32 cpu = 0; cpu < CPUS; cpu++)
				tick(cpu);
		settle_down();
		if (next == until)
			return;
	}
}
