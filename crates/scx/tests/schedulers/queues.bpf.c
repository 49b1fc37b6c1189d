/* Keeps its threads in queues that a map of maps holds: one queue for threads of even numbers, and one for the others. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define MUST(condition) do { if (!(condition)) scx_bpf_error("line %d: " #condition, __LINE__); } while (0)

/* The user-space half sets the default. */
const volatile u64 slice_ns;

struct queue {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16);
	__type(value, s32);
} even SEC(".maps"), odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, int);
	__array(values, struct queue);
} queues SEC(".maps") = {
	.values = { [0] = &even, [1] = &odd },
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} total SEC(".maps");

/* As functions of libraries do, it takes any map. */
static __noinline u64 *first_of(void *map)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(map, &zero);
}

void BPF_STRUCT_OPS(queues_enqueue, struct task_struct *p, u64 enq_flags)
{
	int index = p->pid % 2;
	s32 pid = p->pid;
	void *queue = bpf_map_lookup_elem(&queues, &index);

	MUST(queue == (index ? (void *)&odd : (void *)&even));
	MUST(!bpf_map_push_elem(queue, &pid, 0));
	*first_of(&total) += 1;
}

void BPF_STRUCT_OPS(queues_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 zero = 0;
	s32 pid;

	for (int i = 0; i < 2; i++) {
		int index = (cpu + i) % 2;
		void *queue = bpf_map_lookup_elem(&queues, &index);
		struct task_struct *p;

		if (bpf_map_pop_elem(queue, &pid))
			continue;
		MUST(pid % 2 == index && *(u64 *)bpf_map_lookup_elem(&total, &zero));
		p = bpf_task_from_pid(pid);
		if (p) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
			bpf_task_release(p);
			return;
		}
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(queues_init)
{
	int without = 2, beyond = 3;

	MUST(slice_ns == SCX_SLICE_DFL);
	MUST(!bpf_map_lookup_elem(&queues, &without) && !bpf_map_lookup_elem(&queues, &beyond));
	return 0;
}

SCX_OPS_DEFINE(queues_ops,
	       .enqueue = (void *)queues_enqueue,
	       .dispatch = (void *)queues_dispatch,
	       .init = (void *)queues_init,
	       .name = "queues");
