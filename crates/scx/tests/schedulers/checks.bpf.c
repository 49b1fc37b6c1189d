/* Uses maps, storage, masks, timers, iterators and divisions by zero, and stops with an error where one does not do what it should. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define QUEUE 1
#define MUST(condition) do { if (!(condition)) scx_bpf_error("line %d: " #condition, __LINE__); } while (0)

struct counts { u64 enqueued; u64 ticks; struct bpf_timer timer; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct counts);
	__uint(max_entries, 2);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u64));
	__uint(max_entries, 1);
} by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, s32);
	__type(value, u64);
	__uint(max_entries, 2);
} by_pid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, s32);
	__uint(max_entries, 2);
} waiting SEC(".maps");

struct own { u64 runs; };

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct own);
} own_of SEC(".maps");

volatile u64 zero, seventeen = 17, quotient, rest;
volatile u64 fired;
private(MASK) struct bpf_cpumask __kptr *chosen;

static int on_timer(void *map, int *key, struct counts *value)
{
	MUST(map == &totals && *key == 1);
	value->ticks++;
	fired++;
	bpf_timer_start(&value->timer, 1000000, 0);
	return 0;
}

static long count_key(void *map, u32 *key, struct counts *value, u64 *sum)
{
	*sum += *key + 1;
	return 0;
}

static void check_maps(void)
{
	u32 key = 0, beyond = 2;
	s32 pid = 5, other = 6, third = 7, got = 0;
	u64 value = 40, sum = 0, *place;
	struct counts *first = bpf_map_lookup_elem(&totals, &key);

	MUST(first && !first->enqueued);
	MUST(!bpf_map_lookup_elem(&totals, &beyond));
	place = bpf_map_lookup_percpu_elem(&by_cpu, &key, 1);
	MUST(place);
	*place = 3;
	place = bpf_map_lookup_elem(&by_cpu, &key);
	MUST(place && !*place);
	MUST(!bpf_map_lookup_elem(&by_pid, &pid));
	MUST(!bpf_map_update_elem(&by_pid, &pid, &value, BPF_ANY));
	MUST(bpf_map_update_elem(&by_pid, &pid, &value, BPF_NOEXIST) == -EEXIST);
	MUST(bpf_map_update_elem(&by_pid, &other, &value, BPF_EXIST) == -ENOENT);
	MUST(!bpf_map_update_elem(&by_pid, &other, &value, BPF_ANY));
	MUST(bpf_map_update_elem(&by_pid, &third, &value, BPF_ANY) == -E2BIG);
	place = bpf_map_lookup_elem(&by_pid, &pid);
	MUST(place && *place == 40);
	MUST(!bpf_map_delete_elem(&by_pid, &pid) && bpf_map_delete_elem(&by_pid, &pid) == -ENOENT);
	MUST(!bpf_map_push_elem(&waiting, &pid, 0) && !bpf_map_push_elem(&waiting, &other, 0));
	MUST(bpf_map_push_elem(&waiting, &third, 0) == -E2BIG);
	MUST(!bpf_map_peek_elem(&waiting, &got) && got == 5);
	MUST(!bpf_map_pop_elem(&waiting, &got) && got == 5);
	MUST(!bpf_map_pop_elem(&waiting, &got) && got == 6 && bpf_map_pop_elem(&waiting, &got));
	bpf_for_each_map_elem(&totals, count_key, &sum, 0);
	MUST(sum == 3);
}

static void check_masks(void)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	bpf_cpumask_set_cpu(1, mask);
	MUST(bpf_cpumask_test_cpu(1, cast_mask(mask)) && bpf_cpumask_first(cast_mask(mask)) == 1);
	MUST(bpf_cpumask_subset(cast_mask(mask), scx_bpf_get_online_cpumask()));
	MUST(bpf_cpumask_weight(scx_bpf_get_online_cpumask()) == scx_bpf_nr_cpu_ids());
	MUST(!bpf_kptr_xchg(&chosen, mask));
	mask = bpf_kptr_xchg(&chosen, NULL);
	bpf_cpumask_release(mask);
	quotient = seventeen / zero;
	rest = seventeen % zero;
	MUST(quotient == 0 && rest == 17);
}

void BPF_STRUCT_OPS(checks_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 key = 0;
	struct counts *total = bpf_map_lookup_elem(&totals, &key);
	struct own *own = bpf_task_storage_get(&own_of, p, 0, 0);

	MUST(own && total);
	MUST(bpf_task_from_pid(p->pid) == p && p->group_leader->pid == p->tgid);
	total->enqueued++;
	scx_bpf_dsq_insert(p, QUEUE, 3000000, enq_flags);
}

void BPF_STRUCT_OPS(checks_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	s32 before = 0;

	MUST((s32)bpf_get_smp_processor_id() == cpu);
	bpf_for_each(scx_dsq, p, QUEUE, 0) {
		if (!before) {
			MUST(scx_bpf_dsq_peek(QUEUE) == p);
			before = p->pid;
			scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, 2000000);
			MUST(scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0));
		}
	}
	MUST(scx_bpf_dispatch_nr_slots() == 32);
}

void BPF_STRUCT_OPS(checks_running, struct task_struct *p)
{
	struct own *own = bpf_task_storage_get(&own_of, p, 0, 0);

	MUST(own && scx_bpf_task_running(p) && scx_bpf_cpu_curr(scx_bpf_task_cpu(p)) == p);
	own->runs++;
}

void BPF_STRUCT_OPS(checks_tick, struct task_struct *p)
{
	MUST(bpf_get_current_task_btf() == p && !(p->flags & PF_IDLE));
}

s32 BPF_STRUCT_OPS(checks_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	MUST(args->fork);
	return bpf_task_storage_get(&own_of, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -ENOMEM;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(checks_init)
{
	u32 key = 1;
	struct counts *second = bpf_map_lookup_elem(&totals, &key);

	check_maps();
	check_masks();
	bpf_timer_init(&second->timer, &totals, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&second->timer, on_timer);
	bpf_timer_start(&second->timer, 1000000, 0);
	return scx_bpf_create_dsq(QUEUE, -1);
}

SCX_OPS_DEFINE(checks_ops,
	       .enqueue = (void *)checks_enqueue,
	       .dispatch = (void *)checks_dispatch,
	       .running = (void *)checks_running,
	       .tick = (void *)checks_tick,
	       .init_task = (void *)checks_init_task,
	       .init = (void *)checks_init,
	       .name = "checks");
