/* Threads wake on the CPUs of a domain that the user-space half names. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

const volatile bool primary_all = true;

static u64 domain;

struct cpu_arg {
	s32 cpu_id;
};

SEC("syscall")
int enable_primary_cpu(struct cpu_arg *input)
{
	domain |= 1ULL << input->cpu_id;
	return 0;
}

s32 BPF_STRUCT_OPS(primary_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu;

	bpf_for(cpu, 0, 64) {
		if (!primary_all && !(domain >> cpu & 1))
			continue;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && scx_bpf_test_and_clear_cpu_idle(cpu)) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
			return cpu;
		}
	}
	return prev_cpu;
}

SCX_OPS_DEFINE(primary_ops,
	       .select_cpu = (void *)primary_select_cpu,
	       .name = "primary");
