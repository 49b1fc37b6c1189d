/* Goes wrong in the way that `fault` names. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

enum { KEEPS_THREADS, DISPATCHES_TWICE, UNKNOWN_QUEUE, FORBIDDEN_CPU, UNKNOWN_CPU, RESCHEDULES_FOREVER, INIT_FAILS };
const volatile u32 fault;
const volatile u32 nr_cpu_ids;

s32 BPF_STRUCT_OPS(faults_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return fault == UNKNOWN_CPU ? (s32)nr_cpu_ids : prev_cpu;
}

void BPF_STRUCT_OPS(faults_enqueue, struct task_struct *p, u64 enq_flags)
{
	switch (fault) {
	case KEEPS_THREADS:
		return;
	case DISPATCHES_TWICE:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, 0, 0);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, 0, 0);
		return;
	case UNKNOWN_QUEUE:
		scx_bpf_dsq_insert(p, 99, 0, 0);
		return;
	case FORBIDDEN_CPU:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | bpf_cpumask_first_zero(p->cpus_ptr), 0, 0);
		return;
	default:
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	}
}

void BPF_STRUCT_OPS(faults_running, struct task_struct *p)
{
	if (fault == RESCHEDULES_FOREVER)
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(faults_init)
{
	return fault == INIT_FAILS ? -EINVAL : 0;
}

SCX_OPS_DEFINE(faults_ops,
	       .select_cpu = (void *)faults_select_cpu,
	       .enqueue = (void *)faults_enqueue,
	       .running = (void *)faults_running,
	       .init = (void *)faults_init,
	       .timeout_ms = 2000,
	       .name = "faults");
