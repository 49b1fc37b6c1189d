/* Per-CPU facts of the kernel that schedulers read. */
#ifndef COUNTERSTEER_PERCPU_H
#define COUNTERSTEER_PERCPU_H
#include <scx/common.bpf.h>

static inline int cpu_llc_id(s32 cpu) { return sim.llc_of(sim.world, cpu); }
static inline int this_cpu_llc_id(void) { return cpu_llc_id(bpf_get_smp_processor_id()); }
static inline int cpu_llc_size(s32 cpu)
{
	int size = 0;
	for (u32 other = 0; other < scx_bpf_nr_cpu_ids(); other++)
		size += cpu_llc_id(other) == cpu_llc_id(cpu);
	return size;
}
/* The kernel ranks cores by their highest frequency where ITMT is on. */
static inline int cpu_priority(s32 cpu) { return (int)scx_bpf_cpuperf_cap(cpu); }
static inline int this_cpu_priority(void) { return cpu_priority(bpf_get_smp_processor_id()); }

#endif
