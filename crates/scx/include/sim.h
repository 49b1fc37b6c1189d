/*
 * Interface between a scheduler and the simulator that runs it: types of the kernel, and the table of functions behind the
 * helpers and kfuncs. `abi.rs` mirrors every structure that is marked "mirrored", field by field.
 */
#ifndef COUNTERSTEER_SIM_H
#define COUNTERSTEER_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <limits.h>

/* Schedulers guard their own definitions of the kernel's types with this name. */
#define __VMLINUX_H__
/* The target of BPF; its headers have a part for user space, too. */
#define __BPF__ 1
/* Functions that another file may replace cannot be inlined on processors, though schedulers ask for it. */
#define always_inline __unused__

typedef uint8_t u8, __u8;
typedef uint16_t u16, __u16;
typedef uint32_t u32, __u32;
typedef int8_t s8, __s8;
typedef int16_t s16, __s16;
typedef int32_t s32, __s32;
typedef unsigned long long u64, __u64;
typedef long long s64, __s64;
typedef int pid_t;
typedef unsigned int gfp_t;
typedef s64 ktime_t;
typedef struct { int counter; } atomic_t;

#define NR_CPUS 1024
enum { TASK_COMM_LEN = 16 };

struct cpumask { unsigned long bits[NR_CPUS / 64]; };
typedef struct cpumask cpumask_t;
struct bpf_cpumask { struct cpumask cpumask; int usage; };

struct scx_dispatch_q { u64 id; u32 nr; };

/* Mirrored. */
struct sched_ext_entity {
	u64 slice;
	u64 dsq_vtime;
	u32 weight;
	u32 flags;
	s32 sticky_cpu;
	s32 holding_cpu;
	s32 selected_cpu;
	bool disallow;
	struct scx_dispatch_q *dsq;
	u64 runnable_at;
};

struct sched_avg { u64 last_update_time; unsigned long load_avg, runnable_avg, util_avg; };
struct load_weight { unsigned long weight; u32 inv_weight; };

/* Mirrored. */
struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
	u64 prev_sum_exec_runtime;
	u64 vruntime;
	u64 nr_migrations;
	struct load_weight load;
	struct sched_avg avg;
};

struct thread_info { unsigned long flags; u32 cpu; };
struct mm_struct { u64 id; };
struct kernfs_node { u64 id; const char *name; };
struct cgroup_subsys_state { struct cgroup *cgroup; u64 id; struct cgroup_subsys_state *parent; };
struct cgroup { struct cgroup_subsys_state self; int level; struct kernfs_node *kn; struct cgroup *dom_cgrp; };
struct css_set { struct cgroup *dfl_cgrp; };
struct sched_class;
struct cpufreq_policy { u32 min, max, cur; struct { u32 max_freq, min_freq; } cpuinfo; };
/* For programs at hooks that the simulator does not have. */
struct trace_entry { u16 type; u8 flags, preempt_count; int pid; };
struct __kernel_timespec { s64 tv_sec, tv_nsec; };
struct signal_struct;

/* The fields from `scx` to `comm` are mirrored. */
struct task_struct {
	struct sched_ext_entity scx;
	struct sched_entity se;
	const cpumask_t *cpus_ptr;
	s32 nr_cpus_allowed;
	u32 flags;
	s32 pid;
	s32 tgid;
	s32 prio, static_prio, normal_prio;
	u32 policy;
	s32 wake_cpu, recent_used_cpu;
	u32 __state;
	s32 on_cpu;
	s32 on_rq;
	u16 migration_disabled;
	struct thread_info thread_info;
	struct mm_struct *mm;
	struct task_struct *real_parent, *parent, *group_leader;
	u64 start_time, start_boottime;
	char comm[16];
	/* Zero in the simulator. */
	cpumask_t cpus_mask;
	cpumask_t *user_cpus_ptr;
	u32 rt_priority;
	s32 exit_state, exit_code;
	u64 utime, stime;
	unsigned long nvcsw, nivcsw;
	const struct sched_class *sched_class;
	struct css_set *cgroups;
	struct signal_struct *signal;
	struct task_struct *last_wakee;
	u32 wakee_flips;
	unsigned in_iowait : 1;
	unsigned in_thrashing : 1;
};

struct rq { u32 nr_running; u64 clock; u64 clock_task; u64 clock_pelt; s32 cpu; struct task_struct *curr; };

struct scx_init_task_args { bool fork; struct cgroup *cgroup; };
struct scx_exit_task_args { bool cancelled; };
struct scx_cgroup_init_args { u32 weight; u64 bw_period_us, bw_quota_us, bw_burst_us; };
struct scx_cpu_acquire_args { int unused; };
struct scx_cpu_release_args { int reason; struct task_struct *task; };
struct scx_dump_ctx { int kind; s64 exit_code; const char *reason; u64 at_ns, at_jiffies; };
struct scx_exit_info { int kind; s64 exit_code; const char *reason; unsigned long *bt; u32 bt_len; char *msg; char *dump; };

/* Mirrored. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dequeue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*runnable)(struct task_struct *, u64);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*quiescent)(struct task_struct *, u64);
	bool (*yield)(struct task_struct *, struct task_struct *);
	bool (*core_sched_before)(struct task_struct *, struct task_struct *);
	void (*set_weight)(struct task_struct *, u32);
	void (*set_cpumask)(struct task_struct *, const struct cpumask *);
	void (*update_idle)(s32, bool);
	void (*cpu_acquire)(s32, struct scx_cpu_acquire_args *);
	void (*cpu_release)(s32, struct scx_cpu_release_args *);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	void (*enable)(struct task_struct *);
	void (*disable)(struct task_struct *);
	void (*dump)(struct scx_dump_ctx *);
	void (*dump_cpu)(struct scx_dump_ctx *, s32, bool);
	void (*dump_task)(struct scx_dump_ctx *, struct task_struct *);
	s32 (*cgroup_init)(struct cgroup *, struct scx_cgroup_init_args *);
	void (*cgroup_exit)(struct cgroup *);
	s32 (*cgroup_prep_move)(struct task_struct *, struct cgroup *, struct cgroup *);
	void (*cgroup_move)(struct task_struct *, struct cgroup *, struct cgroup *);
	void (*cgroup_cancel_move)(struct task_struct *, struct cgroup *, struct cgroup *);
	void (*cgroup_set_weight)(struct cgroup *, u32);
	void (*cgroup_set_bandwidth)(struct cgroup *, u64, u64, u64);
	void (*cgroup_set_idle)(struct cgroup *, bool);
	void (*sub_attach)(void *);
	void (*sub_detach)(void *);
	void (*cpu_online)(s32);
	void (*cpu_offline)(s32);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u64 hotplug_seq;
	u64 sub_cgroup_id;
	u32 dispatch_max_batch;
	u32 timeout_ms;
	u32 exit_dump_len;
	char name[128];
	void *priv;
};

struct sim_map_shape { u32 type, key_size, value_size, max_entries; };

/* Mirrored. The first argument of every function is `world`. */
struct sim_host {
	void *world;
	void (*error)(void *, const char *);
	void (*print)(void *, const char *);
	u64 (*now)(void *);
	u32 (*random)(void *);
	s32 (*this_cpu)(void *);
	u32 (*nr_cpus)(void *);
	struct task_struct *(*current)(void *);
	struct task_struct *(*task_from_pid)(void *, s32);
	struct task_struct *(*cpu_curr)(void *, s32);
	s32 (*task_cpu)(void *, const struct task_struct *);
	bool (*task_running)(void *, const struct task_struct *);
	s32 (*llc_of)(void *, s32);
	s32 (*node_of)(void *, s32);
	u32 (*cpuperf_cap)(void *, s32);
	u32 (*cpuperf_cur)(void *, s32);
	u64 (*clock_pelt)(void *, s32);
	const struct cpumask *(*mask)(void *, u32 which);
	bool (*test_and_clear_idle)(void *, s32);
	s32 (*pick_idle)(void *, const struct cpumask *, u64 flags);
	s32 (*select_default)(void *, struct task_struct *, s32 prev, u64 wake_flags, const struct cpumask *, u64 flags);
	s32 (*create_dsq)(void *, u64);
	void (*destroy_dsq)(void *, u64);
	s32 (*dsq_length)(void *, u64);
	struct task_struct *(*dsq_next)(void *, u64 dsq, struct task_struct *after, u64 flags);
	bool (*insert)(void *, struct task_struct *, u64 dsq, u64 slice, u64 vtime, u64 enq_flags, bool by_vtime);
	bool (*move_to_local)(void *, u64);
	bool (*move_task)(void *, u64 from, struct task_struct *, u64 dsq, u64 slice, u64 vtime, u64 enq_flags, u32 given);
	u32 (*free_slots)(void *);
	void (*kick)(void *, s32, u64);
	u32 (*reenqueue_local)(void *);
	void *(*map_lookup)(void *, void *map, struct sim_map_shape, const void *key, s32 cpu);
	s64 (*map_update)(void *, void *map, struct sim_map_shape, const void *key, const void *value, u64 flags);
	s64 (*map_delete)(void *, void *map, const void *key);
	s64 (*map_push)(void *, void *map, struct sim_map_shape, const void *value, u64 flags);
	s64 (*map_pop)(void *, void *map, struct sim_map_shape, void *value, bool keep);
	s64 (*map_each)(void *, void *map, struct sim_map_shape, void *callback, void *context);
	void *(*storage)(void *, void *map, struct sim_map_shape, const void *owner, const void *initial, u64 flags);
	s64 (*storage_delete)(void *, void *map, const void *owner);
	s64 (*timer_set)(void *, void *timer, void *callback);
	s64 (*timer_start)(void *, void *timer, u64 nsecs, u64 flags);
	s64 (*timer_cancel)(void *, void *timer);
	void *(*arena_alloc)(void *, u64 bytes);
	void (*arena_free)(void *, void *, u64);
};
extern struct sim_host sim;

#endif
