/* Counters of the schedulers' library: none can be read in the simulator. */
#ifndef COUNTERSTEER_PMU_H
#define COUNTERSTEER_PMU_H
#include <scx/common.bpf.h>

static inline int scx_pmu_install(u64 event) { (void)event; return -EOPNOTSUPP; }
static inline int scx_pmu_uninstall(u64 event) { (void)event; return 0; }
static inline int scx_pmu_task_init(struct task_struct *p) { (void)p; return 0; }
static inline int scx_pmu_task_fini(struct task_struct *p) { (void)p; return 0; }
static inline int scx_pmu_event_start(struct task_struct *p, bool update) { (void)p; (void)update; return -EOPNOTSUPP; }
static inline int scx_pmu_event_stop(struct task_struct *p) { (void)p; return -EOPNOTSUPP; }
static inline int scx_pmu_read(struct task_struct *p, u64 event, u64 *value, bool clear)
{
	(void)p; (void)event; (void)value; (void)clear;
	return -EOPNOTSUPP;
}

#endif
