/* Keeps data of its threads in an arena, which its programs prepare, and stops with an error where one gets what it should not. */
#include <scx/common.bpf.h>
#include <bpf_arena_common.bpf.h>

char _license[] SEC("license") = "GPL";

#define MUST(condition) do { if (!(condition)) scx_bpf_error("line %d: " #condition, __LINE__); } while (0)

/* Number of CPUs, memory nodes, caches and cores that the tree must have in all. */
const volatile u64 tree_nodes;

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__ulong(map_extra, 1ull << 44);
} arena SEC(".maps");

struct task_ctx {
	u64 runs;
	struct task_ctx __arena *next;
	u8 rest[5000];
};

struct arena_init_args { u64 static_pages; u64 task_ctx_size; };
struct arena_alloc_mask_args { u64 bitmap; };
struct arena_topology_node_init_args { u64 bitmap; u64 data_size; u64 id; };

struct own { struct task_ctx __arena *data; };

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct own);
} own_of SEC(".maps");

private(LOCK) arena_spinlock_t lock;
static struct task_ctx __arena *newest;
static u64 *mask;
static u64 size, nodes, whole, single;

SEC("syscall")
int arena_init(struct arena_init_args *args)
{
	size = args->task_ctx_size;
	return args->static_pages ? 0 : -EINVAL;
}

SEC("syscall")
int arena_alloc_mask(struct arena_alloc_mask_args *args)
{
	mask = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0);
	args->bitmap = (u64)mask;
	return mask ? 0 : -ENOMEM;
}

SEC("syscall")
int arena_topology_node_init(struct arena_topology_node_init_args *args)
{
	u64 all = (1ULL << scx_bpf_nr_cpu_ids()) - 1;

	if (args->bitmap != (u64)mask || !*mask || *mask & ~all)
		return -EINVAL;
	nodes++;
	whole += *mask == all && !args->id;
	single += *mask == 1ULL << args->id;
	bpf_arena_free_pages(&arena, mask, 1);
	return 0;
}

s32 BPF_STRUCT_OPS(arena_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct own *own = bpf_task_storage_get(&own_of, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct task_ctx __arena *data = bpf_arena_alloc_pages(&arena, NULL, 2, NUMA_NO_NODE, 0);

	if (!own || !data)
		return -ENOMEM;
	for (int i = 0; i < sizeof(*data); i++)
		MUST(!((u8 *)data)[i]);
	data->rest[4999] = 7;
	data->next = newest;
	newest = data;
	own->data = data;
	return 0;
}

void BPF_STRUCT_OPS(arena_running, struct task_struct *p)
{
	struct own *own = bpf_task_storage_get(&own_of, p, 0, 0);

	MUST(own && own->data && own->data->rest[4999] == 7);
	MUST(!arena_spin_lock(&lock));
	MUST(cmpxchg(&own->data->runs, own->data->runs, own->data->runs + 1) + 1 == own->data->runs);
	arena_spin_unlock(&lock);
}

void BPF_STRUCT_OPS(arena_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_ctx __arena *data;
	u64 ran = 0;

	for (data = newest; data && can_loop; data = data->next)
		ran += data->runs > 0;
	MUST(ran == 6);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(arena_start)
{
	MUST(size == sizeof(struct task_ctx));
	MUST(nodes == tree_nodes && whole == 2 && single == 2 * scx_bpf_nr_cpu_ids());
	MUST(!bpf_arena_alloc_pages(&arena, mask, 1, NUMA_NO_NODE, 0));
	return 0;
}

SCX_OPS_DEFINE(arena_ops,
	       .running = (void *)arena_running,
	       .init_task = (void *)arena_init_task,
	       .exit_task = (void *)arena_exit_task,
	       .init = (void *)arena_start,
	       .name = "arena");
