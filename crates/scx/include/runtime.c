/* Linked to every scheduler: the simulator's functions, the root group, and the sizes that both sides must agree on. */
#include <scx/common.bpf.h>

struct sim_host sim;
static struct kernfs_node root_node = { 1, "" };
struct cgroup sim_root = { { &sim_root, 1, NULL }, 0, &root_node, &sim_root };
/* Frequencies are not limited: no CPU has a policy. */
struct cpufreq_policy *cpufreq_cpu_data[NR_CPUS];
/* Options of the simulated kernel's build. */
u64 CONFIG_HZ = 250, CONFIG_NR_CPUS = NR_CPUS;
bool CONFIG_NO_HZ_IDLE = true, CONFIG_X86_64 = true, CONFIG_PREEMPT_RT;
const u64 sim_sizes[] = {
	sizeof(struct task_struct), offsetof(struct task_struct, cpus_mask), offsetof(struct task_struct, se),
	offsetof(struct task_struct, pid), offsetof(struct task_struct, comm), sizeof(struct sched_ext_ops), sizeof(struct sim_host),
};
