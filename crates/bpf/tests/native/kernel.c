// SPDX-License-Identifier: GPL-2.0
/*
 * A small fake of the kernel's sched_ext, and the scheduler on it, natively: compiled with sanitizers, driven by random events,
 * one after the other.
 *
 * Errors for which the kernel would end the scheduler end the program with the seed and the step. They are a CPU that does not
 * exist, a thread queued twice, a thread that waits for longer than the watchdog allows. A contradiction in the scheduler's own
 * data ends it as well.
 *
 * Usage: kernel SEED STEPS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdarg.h>

#include "../../src/bpf/engine.bpf.c"

#define CPUS 8
#define TASKS 40
#define QUEUED 64
/* Targets that are in use at the same time. */
#define TARGETS 12
#define SLICE_NS 3000000
#define MS 1000000ULL
/* Wait after which a runnable thread is lost, shorter than that of the kernel's watchdog. */
#define WATCHDOG_NS (3000 * MS)
#ifndef DROP
#define DROP NONE
#endif

const volatile struct settings settings = {
	.slice_ns = SLICE_NS,
	.nr_cpus = CPUS,
	.report_switches = 1,
	.drop_target = DROP,
};

int has_newer_functions;

enum state { DEAD, ASLEEP, WAITING, RUNNING };

/* Thread. */
struct task {
	struct task_struct task; /* first: programs see this */
	struct bpf_cpumask allowed;
	struct thread *thread;
	u64 factor; /* factor that the counting programs have computed; 0 for none */
	enum state state;
	s32 cpu;
	struct queue *queue; /* queue in which it waits; NULL if it is in none */
	u64 vtime;
	u64 slice; /* remaining time */
	u64 next_slice;
	u64 waits_since;
	u64 came_ns;
	u32 refs;
	bool inserted;
	struct queue *chosen;
};

struct queue {
	bool exists, local;
	u32 nr;
	struct task *tasks[QUEUED];
};

struct cpu {
	bool online, idle, kicked;
	struct task *current;
	struct queue local;
	u64 since; /* time when `current` was last accounted for */
};

/* Operation that is being called. */
enum op { NOTHING, SELECT, ENQUEUE, DISPATCH, UNLOCKED, SYSCALL, TIMER, OTHER, INIT };

static struct task tasks[TASKS];
static struct cpu cpus[CPUS];
static struct queue target_queues[MAX_TARGETS], cpu_queues[CPUS];
static enum op op;
static s32 op_cpu;
static struct task *op_task, *op_current;
static u64 now_ns = 1000 * MS;
static int rcu_depth, reserved, masks, references;
static bool may_fail;
/* Limit on the number of threads. */
static u32 crowd;
static u64 step, seed, random_state;
static u64 event_counts[16], calls[16];
/* Number of times that a thread began another time slice without leaving its CPU. */
static u64 kept;
static struct target stored_targets[MAX_TARGETS];
static struct served stored_serving[MAX_CPUS];
static struct alarm stored_alarms[MAX_CPUS];
static struct {
	bool ready;
	u64 due; /* 0 for off */
	s32 cpu;
} timers[MAX_CPUS];

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "seed %llu, step %llu, at %llu ms: ", seed, step, now_ns / MS);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}
#define must(condition, ...) ((condition) ? (void)0 : fail(__VA_ARGS__))

/* splitmix64 */
static u64 draw(u64 below)
{
	u64 z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (z ^ (z >> 31)) % below;
}

static bool chance(u64 in)
{
	return draw(in) == 0;
}

static struct task *task_of(const struct task_struct *p)
{
	return (struct task *)p;
}

static u64 bits_of(const struct cpumask *mask)
{
	return ((const struct bpf_cpumask *)mask)->bits[0];
}

static u64 online_bits(void)
{
	u64 bits = 0;

	for (int cpu = 0; cpu < CPUS; cpu++)
		bits |= (u64)cpus[cpu].online << cpu;
	return bits;
}

/* Random bit of the mask; CPUS if there is none. */
static u32 any_of(u64 bits)
{
	u32 nth;

	bits &= (1ULL << CPUS) - 1;
	if (!bits)
		return CPUS;
	nth = draw(__builtin_popcountll(bits));
	while (nth--)
		bits &= bits - 1;
	return __builtin_ctzll(bits);
}

static struct queue *queue_at(u64 id)
{
	struct queue *queue = NULL;

	if (id >= QUEUE_OF_TARGET && id < QUEUE_OF_TARGET + MAX_TARGETS)
		queue = &target_queues[id - QUEUE_OF_TARGET];
	else if (id >= QUEUE_OF_CPU && id < QUEUE_OF_CPU + CPUS)
		queue = &cpu_queues[id - QUEUE_OF_CPU];
	return queue && queue->exists ? queue : NULL;
}

static void put_in(struct queue *queue, struct task *t, bool first)
{
	u32 at = queue->nr;

	must(!t->queue, "thread %d is put into two queues", t->task.pid);
	must(queue->nr < QUEUED, "a queue is full");
	if (first)
		at = 0;
	else if (!queue->local)
		for (at = 0; at < queue->nr && (s64)(queue->tasks[at]->vtime - t->vtime) <= 0;)
			at++;
	memmove(&queue->tasks[at + 1], &queue->tasks[at], (queue->nr - at) * sizeof(t));
	queue->tasks[at] = t;
	queue->nr++;
	t->queue = queue;
}

static void take_out(struct task *t)
{
	struct queue *queue = t->queue;
	u32 at = 0;

	if (!queue)
		return;
	while (queue->tasks[at] != t)
		at++;
	queue->nr--;
	memmove(&queue->tasks[at], &queue->tasks[at + 1], (queue->nr - at) * sizeof(t));
	t->queue = NULL;
}

/* Begins a call of a program; calls are not nested. */
static void enter(enum op what, s32 cpu, struct task *t)
{
	must(op == NOTHING, "calls are nested");
	op = what;
	op_cpu = cpu;
	op_task = t;
	calls[what]++;
}

static void leave(void)
{
	must(!rcu_depth, "an RCU section is left open");
	must(!reserved, "a record of the ring is never submitted");
	must(!references, "a reference to a thread is never given back");
	op = NOTHING;
	op_task = NULL;
}

#define CALL(what, cpu, t, call) \
	do { \
		enter(what, cpu, t); \
		call; \
		leave(); \
	} while (0)

/* Thread of a key that is its address. */
static struct task *task_at(const void *key)
{
	struct task *t = *(struct task *const *)key;

	must(t >= tasks && t < tasks + TASKS, "no thread has this address");
	return t;
}

/* Helpers. */
long bpf_map_delete_elem(void *map, const void *key)
{
	must(map == &metrics, "something is deleted from an unknown map");
	task_at(key)->factor = 0;
	return 0;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	u32 at = *(const u32 *)key;

	if (map == &targets)
		return at < MAX_TARGETS ? &stored_targets[at] : NULL;
	if (map == &serving)
		return at < MAX_CPUS ? &stored_serving[at] : NULL;
	if (map == &alarms)
		return at < MAX_CPUS ? &stored_alarms[at] : NULL;
	if (map == &metrics)
		return task_at(key)->factor ? &task_at(key)->factor : NULL;
	fail("an unknown map is read");
	return NULL;
}

void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags)
{
	struct task *t = task_of(p);

	must(!value, "storage has no initial value here");
	must(map == &threads, "an unknown map is read");
	if (!t->thread && (flags & BPF_LOCAL_STORAGE_GET_F_CREATE) && !(may_fail && chance(8)))
		t->thread = calloc(1, sizeof(*t->thread));
	return t->thread;
}

void *bpf_ringbuf_reserve(void *map, u64 size, u64 flags)
{
	void *data;

	must(map == &ring && !flags, "an unknown ring is written");
	if (may_fail && chance(50))
		return NULL;
	data = malloc(size);
	must(data, "no memory");
	reserved++;
	return data;
}

void bpf_ringbuf_submit(void *data, u64 flags)
{
	struct event *event = data;

	must(event->kind >= EVENT_NEW && event->kind <= EVENT_SWITCH, "a record of kind %u", event->kind);
	must(event->tid >= 1 && event->tid <= TASKS, "a record of thread %u", event->tid);
	must(event->kind != EVENT_NEW || tasks[event->tid - 1].state != DEAD,
	     "the fork of thread %u is reported before its number is known", event->tid);
	if (event->kind == EVENT_SWITCH) {
		struct task *t = &tasks[event->tid - 1];

		must(t->state == RUNNING && t->cpu == (s32)event->to, "thread %u leaves CPU %u, where it does not run",
		     event->tid, event->to);
		must(event->ran_ns == now_ns - t->came_ns, "thread %u ran for %llu ns, reported are %llu", event->tid,
		     now_ns - t->came_ns, event->ran_ns);
	}
	event_counts[event->kind]++;
	reserved--;
	free(data);
}

u64 bpf_ktime_get_ns(void)
{
	return now_ns;
}

u64 scx_bpf_now(void)
{
	return now_ns;
}

u32 bpf_get_smp_processor_id(void)
{
	return op_cpu;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	must(op_current, "there is no current thread");
	return &op_current->task;
}

int bpf_task_storage_delete(void *map, struct task_struct *p)
{
	must(map == &threads, "storage of an unknown map is deleted");
	free(task_of(p)->thread);
	task_of(p)->thread = NULL;
	return 0;
}

long bpf_probe_read_kernel_str(void *into, u32 size, const void *from)
{
	return snprintf(into, size, "%s", (const char *)from) + 1;
}

static u32 timer_row(struct bpf_timer *timer)
{
	return (struct alarm *)timer - stored_alarms;
}

long bpf_timer_init(struct bpf_timer *timer, void *map, u64 clock)
{
	must(map == &alarms && clock == CLOCK_MONOTONIC, "a timer of another map");
	if (timers[timer_row(timer)].ready)
		return -EBUSY;
	timers[timer_row(timer)].ready = true;
	return 0;
}

long bpf_timer_set_callback(struct bpf_timer *timer, void *callback)
{
	must(callback == (void *)go_off, "another callback");
	return timers[timer_row(timer)].ready ? 0 : -EINVAL;
}

long bpf_timer_start(struct bpf_timer *timer, u64 after_ns, u64 flags)
{
	u32 row = timer_row(timer);

	if (!timers[row].ready || flags)
		return -EINVAL;
	timers[row].due = now_ns + after_ns;
	timers[row].cpu = op_cpu;
	return 0;
}

/* Functions of the kernel. */
s32 scx_bpf_create_dsq(u64 id, s32 node)
{
	struct queue *queue = NULL;

	must(op == INIT && node == -1, "a queue is created too late");
	if (id >= QUEUE_OF_TARGET && id < QUEUE_OF_TARGET + MAX_TARGETS)
		queue = &target_queues[id - QUEUE_OF_TARGET];
	else if (id >= QUEUE_OF_CPU && id < QUEUE_OF_CPU + CPUS)
		queue = &cpu_queues[id - QUEUE_OF_CPU];
	must(queue && !queue->exists, "queue %llx is created", id);
	queue->exists = true;
	return 0;
}

static void choose(struct task_struct *p, struct queue *queue, u64 slice, u64 vtime)
{
	struct task *t = task_of(p);

	must(op == ENQUEUE || op == SELECT, "a thread is queued outside of select_cpu and enqueue");
	must(t == op_task, "another thread is queued than the one that it is about");
	must(!t->inserted, "thread %d is queued twice", p->pid);
	must(queue, "a thread is put into a queue that is not there");
	t->inserted = true;
	t->chosen = queue;
	t->next_slice = slice;
	t->vtime = vtime;
}

void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags)
{
	must(id == SCX_DSQ_LOCAL, "a queue is ordered by time and by arrival");
	choose(p, &cpus[task_of(p)->cpu].local, slice, 0);
}

void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 id, u64 slice, u64 vtime, u64 flags)
{
	must(!has_newer_functions, "the older function is called on a kernel that has the newer one");
	choose(p, queue_at(id), slice, vtime);
}

bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args)
{
	must(has_newer_functions, "the newer function is called on a kernel without it");
	choose(p, queue_at(args->dsq_id), args->slice, args->vtime);
	return true;
}

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice)
{
	must(has_newer_functions, "the newer function is called on a kernel without it");
	p->scx.slice = slice;
	return true;
}

bool scx_bpf_dsq_move_to_local(u64 id)
{
	struct queue *queue = queue_at(id);

	must(op == DISPATCH, "a thread is taken outside of dispatch");
	must(queue, "a thread is taken from queue %llx, which is not there", id);
	for (u32 at = 0; at < queue->nr; at++) {
		struct task *t = queue->tasks[at];

		if (!(bits_of(t->task.cpus_ptr) >> op_cpu & 1))
			continue;
		take_out(t);
		t->cpu = op_cpu;
		put_in(&cpus[op_cpu].local, t, false);
		return true;
	}
	return false;
}

s32 scx_bpf_dsq_nr_queued(u64 id)
{
	struct queue *queue = queue_at(id);

	must(queue, "queue %llx, which is not there, is counted", id);
	return queue->nr;
}

/* Threads that existed when the iteration began. */
struct snapshot {
	struct queue *queue;
	u32 nr, next;
	u64 vtime;
	bool has_vtime;
	struct task *tasks[QUEUED];
};

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 id, u64 flags)
{
	struct snapshot *seen = calloc(1, sizeof(*seen));

	must(seen, "no memory");
	must(rcu_depth > 0, "queues are walked outside of an RCU section");
	seen->queue = queue_at(id);
	must(seen->queue, "queue %llx, which is not there, is walked", id);
	seen->nr = seen->queue->nr;
	memcpy(seen->tasks, seen->queue->tasks, sizeof(seen->tasks));
	memcpy(it, &seen, sizeof(seen));
	return 0;
}

static struct snapshot *snapshot_of(struct bpf_iter_scx_dsq *it)
{
	struct snapshot *seen;

	memcpy(&seen, it, sizeof(seen));
	return seen;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	struct snapshot *seen = snapshot_of(it);

	while (seen->next < seen->nr) {
		struct task *t = seen->tasks[seen->next++];

		if (t->queue == seen->queue)
			return &t->task;
	}
	return NULL;
}

void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
	free(snapshot_of(it));
}

void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime)
{
	snapshot_of(it)->vtime = vtime;
	snapshot_of(it)->has_vtime = true;
}

bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags)
{
	struct snapshot *seen = snapshot_of(it);
	struct task *t = task_of(p);

	must(op == SYSCALL || op == TIMER || op == UNLOCKED || op == DISPATCH, "a thread is moved under a lock");
	must(queue_at(id), "a thread is moved to queue %llx, which is not there", id);
	if (t->queue != seen->queue)
		return false;
	take_out(t);
	if (seen->has_vtime)
		t->vtime = seen->vtime;
	seen->has_vtime = false;
	put_in(queue_at(id), t, false);
	return true;
}

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags)
{
	struct snapshot *seen = snapshot_of(it);
	struct task *t = task_of(p);
	u64 cpu = id & ~SCX_DSQ_LOCAL_ON;

	must(op == SYSCALL || op == TIMER || op == UNLOCKED || op == DISPATCH, "a thread is moved under a lock");
	must((id & SCX_DSQ_LOCAL_ON) == SCX_DSQ_LOCAL_ON && cpu < CPUS, "a thread is moved to queue %llx", id);
	must(t->cpu == (s32)cpu || cpus[cpu].online, "a thread is moved to CPU %llu, which is offline", cpu);
	if (t->queue != seen->queue)
		return false;
	take_out(t);
	t->cpu = cpu;
	put_in(&cpus[cpu].local, t, false);
	return true;
}

static s32 claim_idle(u64 bits)
{
	u64 idle = 0;
	u32 cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		idle |= (u64)(cpus[cpu].online && cpus[cpu].idle) << cpu;
	cpu = any_of(idle & bits);
	if (cpu == CPUS)
		return -EBUSY;
	cpus[cpu].idle = false;
	return cpu;
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags)
{
	return claim_idle(bits_of(allowed));
}

s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 flags, bool *is_idle)
{
	s32 cpu = claim_idle(bits_of(p->cpus_ptr));

	*is_idle = cpu >= 0;
	return cpu >= 0 ? cpu : prev;
}

s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev, u64 wake, const struct cpumask *allowed, u64 flags)
{
	return claim_idle(bits_of(p->cpus_ptr) & bits_of(allowed));
}

s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *allowed, struct scx_bpf_select_cpu_and_args *args)
{
	return claim_idle(bits_of(p->cpus_ptr) & bits_of(allowed));
}

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	must(cpu >= 0 && cpu < CPUS, "CPU %d, which is not there, is kicked", cpu);
	if (!(flags & SCX_KICK_IDLE) || !cpus[cpu].current)
		cpus[cpu].kicked = true;
	if ((flags & SCX_KICK_PREEMPT) && cpus[cpu].current)
		cpus[cpu].current->slice = 0;
}

s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	return task_of(p)->cpu;
}

bool scx_bpf_task_running(const struct task_struct *p)
{
	return task_of(p)->state == RUNNING;
}

struct bpf_cpumask *bpf_cpumask_create(void)
{
	struct bpf_cpumask *mask = may_fail && chance(8) ? NULL : calloc(1, sizeof(*mask));

	masks += mask != NULL;
	return mask;
}

void bpf_cpumask_release(struct bpf_cpumask *mask)
{
	masks--;
	free(mask);
}

void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	if (cpu < CPUS)
		mask->bits[0] |= 1ULL << cpu;
}

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	return cpu < CPUS && bits_of(mask) >> cpu & 1;
}

bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b)
{
	return !(bits_of(a) & ~bits_of(b));
}

bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	return bits_of(a) & bits_of(b);
}

u32 bpf_cpumask_any_distribute(const struct cpumask *mask)
{
	return any_of(bits_of(mask));
}

u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b)
{
	return any_of(bits_of(a) & bits_of(b));
}

struct task_struct *bpf_task_from_pid(s32 pid)
{
	struct task *t = pid >= 1 && pid <= TASKS ? &tasks[pid - 1] : NULL;

	if (!t || t->state == DEAD)
		return NULL;
	references++;
	return &t->task;
}

void bpf_task_release(struct task_struct *p)
{
	references--;
}

void bpf_rcu_read_lock(void)
{
	rcu_depth++;
}

void bpf_rcu_read_unlock(void)
{
	rcu_depth--;
}

#include "machine.h"
#include "draw.h"
