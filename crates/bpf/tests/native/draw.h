/* SPDX-License-Identifier: GPL-2.0 */
/* Random events, and checks after each. */
#pragma once

static struct task *any_task(void)
{
	struct task *t;

	for (u32 try = 0; try < 100; try++) {
		t = &tasks[draw(crowd)];
		if (t->state != DEAD)
			return t;
	}
	return NULL;
}

/* Commands of user space. */
static struct command obeyed(struct command command)
{
	commands[0] = command;
	nr_commands = 1;
	CALL(SYSCALL, draw(CPUS), NULL, obey_commands(NULL));
	return commands[0];
}

static void define(u32 id, u64 bits)
{
	memset(&definition, 0, sizeof(definition));
	definition.target = id;
	definition.cpus[0] = bits;
	if (id >= control.nr_targets)
		control.nr_targets = id + 1;
	CALL(SYSCALL, draw(CPUS), NULL, define_target(NULL));
}

static void user_space(void)
{
	struct task *t = any_task();
	struct command command = { .tid = t ? t->task.pid : TASKS + 1 };
	u32 id = 1 + draw(TARGETS - 1), what = draw(12);

	if (what == 0 && !stored_targets[id].known) {
		define(id, 1 + draw((1 << CPUS) - 1));
	} else if (what == 1 && stored_targets[id].known) {
		memset(&definition, 0, sizeof(definition));
		definition.target = id;
		CALL(SYSCALL, draw(CPUS), NULL, retire_target(NULL));
	} else if (what <= 5) {
		command.kind = COMMAND_PLACE;
		command.target = chance(4) ? draw(TARGETS) : 1 + draw(4);
		command.weight = chance(3) ? 512 << draw(3) : 0;
		command.slice_ns = chance(3) ? (1 + draw(8)) * MS : 0;
		command = obeyed(command);
		/* The engine does this after each placement. */
		memset(&definition, 0, sizeof(definition));
		definition.target = command.old_target;
		if (!command.result)
			CALL(SYSCALL, draw(CPUS), NULL, sweep_target(NULL));
	} else if (what == 6) {
		command.kind = COMMAND_ATTACH;
		command.program = draw(4);
		obeyed(command);
	} else if (what == 7) {
		command.kind = COMMAND_COLLECT;
		command = obeyed(command);
		must(command.result || !t || !t->factor || command.metric_q16 == t->factor, "a factor is not reported");
	} else if (what == 8 && chance(4)) {
		command.kind = COMMAND_DETACH;
		obeyed(command);
	} else if (what == 9) {
		command.kind = COMMAND_GIVE_METRIC;
		command.metric_q16 = draw(4 << 16);
		obeyed(command);
	} else if (what == 10) {
		/* The counting programs judge a thread. */
		if (t)
			t->factor = 1 + draw(4 << 16);
		control.steal_above = chance(2) ? NONE : draw(3);
		control.report_spans = chance(2);
	} else {
		struct admission *table = &control.tables[~control.admission & 1];

		table->nr_rows = draw(4);
		for (u32 row = 0; row < table->nr_rows; row++)
			table->rows[row] = (struct admission_row){ .least_q16 = (3 - row) << 16, .target = draw(TARGETS) };
		for (u32 row = 0; row < table->nr_rows; row++)
			if (!stored_targets[table->rows[row].target].known)
				table->rows[row].target = TARGET_ANYWHERE;
		control.admission++;
	}
}

/* Withdraws tables, as the engine does before it retires targets: no table sends threads to a retired target. */
static void withdraw_tables(void)
{
	for (u32 table = 0; table < 2; table++)
		for (u32 row = 0; row < control.tables[table].nr_rows; row++)
			if (!stored_targets[control.tables[table].rows[row].target].known)
				control.tables[table].nr_rows = 0;
}

static void workload(void)
{
	struct task *t = any_task(), *child;
	u32 what = draw(10);

	if (!t || what == 0) {
		child = fork_from(t && t->state == RUNNING ? t : NULL);
		if (child)
			wake(child);
	} else if (what <= 3) {
		wake(t);
	} else if (what == 4 || (what <= 6 && chance(3))) {
		sleep_now(t);
	} else if (what == 7 && chance(3)) {
		set_affinity(t, 1 + draw((1 << CPUS) - 1));
	} else if (what == 8 && chance(4)) {
		end(t);
	} else if (what == 9 && t->state == RUNNING) {
		CALL(OTHER, t->cpu, t, engine_exec(&t->task, t->task.pid, NULL));
	}
}

/* Checks that the scheduler's data agrees with the state. */
static void check_targets(void)
{
	u32 users[MAX_TARGETS] = {};
	u64 followed = 0;

	for (u32 row = 0; row < TASKS; row++) {
		const struct task *t = &tasks[row];

		if (t->state == DEAD || !t->thread)
			continue;
		must(t->thread->target < MAX_TARGETS, "thread %u has target %u", row + 1, t->thread->target);
		users[t->thread->target]++;
		followed += t->thread->followed;
	}
	must(followed == counters.followed, "%llu threads are followed, and %llu are counted", followed, counters.followed);
	for (u32 id = 0; id < TARGETS; id++) {
		const struct target *target = &stored_targets[id];
		u64 bits = target->mask ? target->mask->bits[0] : 0;

		must(id == TARGET_ANYWHERE || users[id] == target->users, "target %u has %u threads, and %u are counted", id,
		     users[id], target->users);
		must(target->known || !users[id], "target %u is retired, and a thread has it", id);
		must(target->known || !target_queues[id].nr, "target %u is retired, and a thread waits there", id);
		must(!target->known || target->online == (u32)__builtin_popcountll(bits & online_bits()),
		     "target %u has %u CPUs that are online by its books", id, target->online);
		for (u32 cpu = 0; cpu < CPUS; cpu++) {
			const struct served *served = &stored_serving[cpu];
			u32 times = 0;

			for (u32 i = 0; i < served->count; i++)
				times += served->targets[i] == id;
			must(times == (target->known && bits >> cpu & 1), "CPU %u serves target %u %u times", cpu, id, times);
		}
	}
}

/* Name of the queue in which a thread waits, and the CPUs that are online. */
static const char *place_of(const struct task *t)
{
	static char name[100];
	const char *kind = "a local queue";
	u64 row = 0;

	if (t->queue >= cpu_queues && t->queue < cpu_queues + CPUS) {
		kind = "the queue of CPU";
		row = t->queue - cpu_queues;
	} else if (!t->queue->local) {
		kind = "the queue of target";
		row = t->queue - target_queues;
	}
	snprintf(name, sizeof(name), "%s %llu, online %llx", kind, row, online_bits());
	return name;
}

static void check_threads(void)
{
	for (u32 row = 0; row < TASKS; row++) {
		const struct task *t = &tasks[row];

		if (t->state != WAITING)
			continue;
		must(t->queue, "thread %u waits in no queue", row + 1);
		must(now_ns - t->waits_since < WATCHDOG_NS, "thread %u (affinity %llx, CPU %d, target %u) has waited since %llu ms in %s",
		     row + 1, t->allowed.bits[0], t->cpu, t->thread ? t->thread->target : 0, t->waits_since / MS,
		     place_of(t));
	}
	for (u32 row = 0; row < CPUS; row++)
		must(!stored_alarms[row].set || timers[row].due, "the alarm of CPU %u is set and will never go off", row);
}

static void begin(void)
{
	s32 error;

	CALL(INIT, 0, NULL, error = engine_init());
	must(!error, "the scheduler does not start: %d", error);
	for (s32 cpu = 0; cpu < CPUS; cpu++) {
		cpus[cpu].online = cpus[cpu].idle = cpus[cpu].local.local = cpus[cpu].local.exists = true;
		cpus[cpu].since = now_ns;
		stored_serving[cpu].online = 1;
	}
	define(TARGET_ANYWHERE, (1 << CPUS) - 1);
	must(!definition.result, "no target for all CPUs");
	control.period_ns = 20 * MS;
	control.steal_above = NONE;
	control.tables[0].metric = METRIC_SF;
	for (u32 i = 0; i < crowd / 2; i++)
		fork_from(NULL);
	may_fail = true;
}

/* Ends everything: nothing may be left. */
static void finish(void)
{
	struct scx_exit_info info = { .kind = 64, .reason = "unregistered from user space", .msg = "" };

	may_fail = false;
	for (u32 row = 0; row < TASKS; row++)
		if (tasks[row].state != DEAD)
			end(&tasks[row]);
	check_targets();
	must(!counters.followed, "threads are followed after all have ended");
	pass(100 * MS);
	CALL(OTHER, 0, NULL, engine_exit(&info));
	must(counters.exit_kind == 64, "the reason for the end is lost");
	for (u32 id = 0; id < MAX_TARGETS; id++)
		if (stored_targets[id].mask)
			bpf_cpumask_release(stored_targets[id].mask);
	must(!masks, "%d masks are left", masks);
}

int main(int argc, char **argv)
{
	u64 steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;

	seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	random_state = seed;
	has_newer_functions = draw(2);
	crowd = 4 + draw(TASKS - 3);
	begin();
	for (step = 0; step < steps; step++) {
		u32 what = draw(20);

		if (what < 6)
			user_space();
		else if (what < 16)
			workload();
		else if (what == 16 && chance(4))
			go_offline(draw(CPUS));
		else if (what == 17 && chance(2))
			go_online(draw(CPUS));
		withdraw_tables();
		settle_down();
		check_targets();
		pass(draw(3) ? draw(2 * MS) : draw(12 * MS));
		check_threads();
	}
	finish();
	printf("%llu records of exits, %llu dispatches, %llu timers, %llu moved, %llu stolen, %llu kept, %llu switches\n", event_counts[EVENT_EXIT],
	       calls[DISPATCH], calls[TIMER], counters.moved, counters.stolen, kept, event_counts[EVENT_SWITCH]);
	return 0;
}
