/* One queue for all CPUs, in the order of weighted running time; with `fifo`, in the order of arrival. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

const volatile bool fifo;
const volatile u64 slice_ns = 20000000;

#define QUEUE 7

static u64 latest;

s32 BPF_STRUCT_OPS(vtime_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(vtime_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime;

	if (time_before(vtime, latest - slice_ns))
		vtime = latest - slice_ns;
	if (fifo)
		scx_bpf_dsq_insert(p, QUEUE, slice_ns, enq_flags);
	else
		scx_bpf_dsq_insert_vtime(p, QUEUE, slice_ns, vtime, enq_flags);
}

void BPF_STRUCT_OPS(vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(vtime_running, struct task_struct *p)
{
	if (time_before(latest, p->scx.dsq_vtime))
		latest = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(vtime_stopping, struct task_struct *p, bool runnable)
{
	p->scx.dsq_vtime += scale_by_task_weight_inverse(p, slice_ns - p->scx.slice);
}

void BPF_STRUCT_OPS(vtime_enable, struct task_struct *p)
{
	p->scx.dsq_vtime = latest;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(vtime_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SCX_OPS_DEFINE(vtime_ops,
	       .select_cpu = (void *)vtime_select_cpu,
	       .enqueue = (void *)vtime_enqueue,
	       .dispatch = (void *)vtime_dispatch,
	       .running = (void *)vtime_running,
	       .stopping = (void *)vtime_stopping,
	       .enable = (void *)vtime_enable,
	       .init = (void *)vtime_init,
	       .name = "vtime");
