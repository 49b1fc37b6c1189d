/* Threads wake on the first idle CPU of a table that the user-space half fills; the other tables are held against the kernel's facts. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define MUST(condition) do { if (!(condition)) scx_bpf_error("line %d: " #condition, __LINE__); } while (0)
#define MOST 64

struct domain {
	u64 __cpumask[4];
	u8 is_valid, is_big, llc_id;
	u64 id, alt_id;
	u8 nr_neighbors[3], neighbor_ids[3 * 8];
};

struct domain cpdom_ctxs[8];
const volatile u16 cpu_capacity[MOST];
const volatile u8 cpu_big[MOST], cpu_turbo[MOST];
const volatile u32 cpu_sibling[MOST];
const volatile u8 nr_pco_states;
const volatile u32 pco_bounds[3];
const volatile u16 pco_table[3][MOST];
const volatile u64 nr_llcs, slice_max_ns = 1;
/* Row of the table that threads follow. */
const volatile u32 row = 1;

s32 BPF_STRUCT_OPS(domains_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 i;

	bpf_for(i, 0, scx_bpf_nr_cpu_ids()) {
		s32 cpu = pco_table[row][i];

		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && scx_bpf_test_and_clear_cpu_idle(cpu)) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_max_ns, 0);
			return cpu;
		}
	}
	return prev_cpu;
}

static void check_domain(struct domain *d, u64 *seen)
{
	u32 cpu;

	MUST(!(*seen & d->__cpumask[0]));
	*seen |= d->__cpumask[0];
	MUST(cpdom_ctxs[d->alt_id].is_valid);
	for (int i = 0; i < d->nr_neighbors[0]; i++)
		MUST(cpdom_ctxs[d->neighbor_ids[i]].is_valid && d->neighbor_ids[i] != d->id);
	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids())
		if (d->__cpumask[0] >> cpu & 1)
			MUST(cpu_big[cpu] == d->is_big && d->llc_id < nr_llcs);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(domains_init)
{
	u32 cpu, n = scx_bpf_nr_cpu_ids();
	u64 seen = 0;

	for (int i = 0; i < 8 && cpdom_ctxs[i].is_valid; i++) {
		MUST(cpdom_ctxs[i].id == i);
		check_domain(&cpdom_ctxs[i], &seen);
	}
	MUST(seen == (1ULL << n) - 1);
	bpf_for(cpu, 0, n) {
		MUST(cpu_capacity[cpu] == scx_bpf_cpuperf_cap(cpu));
		MUST(!cpu_turbo[cpu] || cpu_big[cpu]);
		MUST(cpu_sibling[cpu] == ~0U);
	}
	MUST(nr_pco_states == 2 && pco_bounds[0] < pco_bounds[1] && pco_bounds[2] == pco_bounds[1]);
	MUST(slice_max_ns == 5000000);
	return 0;
}

SCX_OPS_DEFINE(domains_ops,
	       .select_cpu = (void *)domains_select_cpu,
	       .init = (void *)domains_init,
	       .name = "domains");
