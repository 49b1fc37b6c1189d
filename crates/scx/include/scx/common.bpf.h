/*
 * The names that schedulers for sched_ext use, on top of the simulator: helpers of BPF, kfuncs of sched_ext, and the small
 * functions that scheduler authors share. What a scheduler names and this file lacks is reported when the scheduler is built.
 */
#ifndef __SCX_COMMON_BPF_H
#define __SCX_COMMON_BPF_H

#include "../sim.h"

/* Sections and attributes have no meaning outside of BPF. */
#define SEC(name) __attribute__((used))
#define __ksym
#define __kptr
#define __kptr_untrusted
#define __percpu_kptr
#define __uptr
#define __arena
#define __arg_ctx
#define __arg_nonnull
#define __arg_nullable
#define __arg_trusted
#define __arg_arena
#define __kconfig
#define __noinline __attribute__((noinline))
#ifndef __weak
#define __weak __attribute__((weak))
#endif
#define __hidden
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#define __bpf__
#define __contains(name, node)
#define private(name)
#define __sink(expr) asm volatile("" : "+g"(expr))
#define barrier() asm volatile("" ::: "memory")
#define barrier_var(v) asm volatile("" : "+r"(v))
#define bpf_ksym_exists(name) true
#define bpf_core_field_exists(...) 1
#define bpf_core_type_exists(...) 1
#define bpf_core_enum_value(type, value) (value)
#define bpf_core_enum_value_exists(type, value) 1
#define bpf_core_type_size(type) sizeof(type)
#define BPF_CORE_READ(from, field) ((from)->field)
#define bpf_core_read(to, size, from) (__builtin_memcpy(to, from, size), 0)
#define bpf_core_cast(pointer, type) ((type *)(pointer))
#define bpf_rdonly_cast(pointer, type) (pointer)
#define bpf_addr_space_cast(...)
#define cast_kern(p)
#define cast_user(p)
#define BPF_PROG(name, args...) name(args)
#define BPF_STRUCT_OPS(name, args...) name(args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...) name(args)
#define SCX_OPS_DEFINE(name, ...) struct sched_ext_ops sim_ops = { __VA_ARGS__ };
#define RESIZABLE_ARRAY(section, array) array[NR_CPUS]
#define ARRAY_ELEM_PTR(array, i, n) ((u64)(i) < (u64)(n) ? &(array)[i] : (typeof(&(array)[0]))NULL)
#define MEMBER_VPTR(base, member) (&((base) member))
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))
static const int LINUX_KERNEL_VERSION __attribute__((unused)) = KERNEL_VERSION(7, 2, 0);

#define PF_IDLE 0x00000002
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_WQ_WORKER 0x00000020
#define PF_KCOMPACTD 0x00010000
#define PF_KSWAPD 0x00020000
#define PF_KTHREAD 0x00200000
#define PF_NO_SETAFFINITY 0x04000000
#define CLOCK_MONOTONIC 1
#define NUMA_NO_NODE (-1)
#define BPF_MAX_LOOPS (8 * 1024 * 1024)
#define MAX_RT_PRIO 100
#define DEFAULT_PRIO 120
#define NICE_TO_PRIO(nice) ((nice) + DEFAULT_PRIO)
#define PRIO_TO_NICE(prio) ((prio) - DEFAULT_PRIO)

enum scx_public_consts { SCX_OPS_NAME_LEN = 128, SCX_EXIT_BT_LEN = 64, SCX_CPUPERF_ONE = 1024 };
#define SCX_SLICE_DFL 20000000ULL
#define SCX_SLICE_BYPASS 5000000ULL
#define SCX_SLICE_INF (~0ULL)
#define SCX_DSQ_FLAG_BUILTIN (1ULL << 63)
#define SCX_DSQ_FLAG_LOCAL_ON (1ULL << 62)
#define SCX_DSQ_INVALID (SCX_DSQ_FLAG_BUILTIN | 0)
#define SCX_DSQ_GLOBAL (SCX_DSQ_FLAG_BUILTIN | 1)
#define SCX_DSQ_LOCAL (SCX_DSQ_FLAG_BUILTIN | 2)
#define SCX_DSQ_BYPASS (SCX_DSQ_FLAG_BUILTIN | 3)
#define SCX_DSQ_LOCAL_ON (SCX_DSQ_FLAG_BUILTIN | SCX_DSQ_FLAG_LOCAL_ON)
#define SCX_DSQ_LOCAL_CPU_MASK 0xffffffffULL
#define SCX_DSQ_ITER_REV (1ULL << 16)
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_ENQ_HEAD 16ULL
#define SCX_ENQ_CPU_SELECTED (1ULL << 10)
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_IMMED (1ULL << 33)
#define SCX_ENQ_REENQ (1ULL << 40)
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_DEQ_SLEEP 1ULL
#define SCX_DEQ_CORE_SCHED_EXEC (1ULL << 32)
#define SCX_WAKE_EXEC 2ULL
#define SCX_WAKE_FORK 4ULL
#define SCX_WAKE_TTWU 8ULL
#define SCX_WAKE_SYNC 16ULL
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
#define SCX_KICK_WAIT 4ULL
#define SCX_PICK_IDLE_CORE 1ULL
#define SCX_PICK_IDLE_IN_NODE 2ULL
#define SCX_OPS_KEEP_BUILTIN_IDLE (1ULL << 0)
#define SCX_OPS_ENQ_LAST (1ULL << 1)
#define SCX_OPS_ENQ_EXITING (1ULL << 2)
#define SCX_OPS_SWITCH_PARTIAL (1ULL << 3)
#define SCX_OPS_ENQ_MIGRATION_DISABLED (1ULL << 4)
#define SCX_OPS_ALLOW_QUEUED_WAKEUP (1ULL << 5)
#define SCX_OPS_BUILTIN_IDLE_PER_NODE (1ULL << 6)
#define SCX_OPS_HAS_CGROUP_WEIGHT (1ULL << 16)
#define SCX_OPS_HAS_CPU_PREEMPT (1ULL << 17)
#define SCX_TASK_QUEUED 1U
#define SCX_TASK_RESET_RUNNABLE_AT 4U
#define SCX_ECODE_ACT_RESTART (1ULL << 48)
#define SCX_ECODE_RSN_HOTPLUG (1ULL << 32)
enum scx_exit_kind { SCX_EXIT_NONE, SCX_EXIT_DONE, SCX_EXIT_UNREG = 64, SCX_EXIT_ERROR = 1024 };
enum scx_cpu_preempt_reason { SCX_CPU_PREEMPT_RT, SCX_CPU_PREEMPT_DL, SCX_CPU_PREEMPT_STOP, SCX_CPU_PREEMPT_UNKNOWN };

/* Maps: a variable's type holds its shape, as it does in BPF. A size and a type give the same member. */
enum bpf_map_type {
	BPF_MAP_TYPE_UNSPEC, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PROG_ARRAY, BPF_MAP_TYPE_PERF_EVENT_ARRAY,
	BPF_MAP_TYPE_PERCPU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY, BPF_MAP_TYPE_STACK_TRACE, BPF_MAP_TYPE_CGROUP_ARRAY,
	BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_LRU_PERCPU_HASH, BPF_MAP_TYPE_LPM_TRIE, BPF_MAP_TYPE_ARRAY_OF_MAPS,
	BPF_MAP_TYPE_HASH_OF_MAPS, BPF_MAP_TYPE_QUEUE = 22, BPF_MAP_TYPE_STACK, BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29, BPF_MAP_TYPE_USER_RINGBUF = 31, BPF_MAP_TYPE_CGRP_STORAGE, BPF_MAP_TYPE_ARENA,
};
enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST, BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024, BPF_F_TIMER_ABS = 1, BPF_F_TIMER_CPU_PIN = 2 };
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1ULL
#define BPF_F_CURRENT_CPU 0xffffffffULL
#define __uint(name, value) SIM_UINT_##name(value)
#define SIM_UINT_type(v) int (*type)[v];
#define SIM_UINT_max_entries(v) int (*max_entries)[v];
#define SIM_UINT_map_flags(v) int (*map_flags)[v];
#define SIM_UINT_pinning(v) int (*pinning)[v];
#define SIM_UINT_key_size(v) char (*key)[v];
#define SIM_UINT_value_size(v) char (*value)[v];
#define __type(name, type_) typeof(type_) *name;
#define __array(name, type_) typeof(type_) **value; typeof(type_) *name[]
#define __ulong(name, value) enum { name##_value = value } name
/* Functions of libraries take any map; the simulator knows its shape from the variable's type. */
struct sim_any_map { int (*type)[0]; char (*key)[0]; char (*value)[0]; int (*max_entries)[0]; };
#define SIM_MAP(m) _Generic((m), void *: (struct sim_any_map *)NULL, default: (m))
#define SIM_TYPE(m) ((u32)(sizeof(*SIM_MAP(m)->type) / sizeof(int)))
#define SIM_ENTRIES(m) ((u32)(sizeof(*SIM_MAP(m)->max_entries) / sizeof(int)))
#define SIM_SIZE(m, member) (sizeof(*SIM_MAP(m)->member))
#define SIM_SHAPE(m) ((struct sim_map_shape){ SIM_TYPE(m), SIM_SIZE(m, key), SIM_SIZE(m, value), SIM_ENTRIES(m) })
#define SIM_VALUES(m) ((struct sim_map_shape){ SIM_TYPE(m), 0, SIM_SIZE(m, value), SIM_ENTRIES(m) })
#define SIM_STORAGE(m) ((struct sim_map_shape){ SIM_TYPE(m), 0, SIM_SIZE(m, value), 0 })
#define bpf_map_lookup_elem(m, k) sim.map_lookup(sim.world, (void *)(m), SIM_SHAPE(m), (k), -1)
#define bpf_map_lookup_percpu_elem(m, k, cpu) sim.map_lookup(sim.world, (void *)(m), SIM_SHAPE(m), (k), (s32)(cpu))
#define bpf_map_update_elem(m, k, v, flags) sim.map_update(sim.world, (void *)(m), SIM_SHAPE(m), (k), (v), (flags))
#define bpf_map_delete_elem(m, k) sim.map_delete(sim.world, (void *)(m), (k))
#define bpf_map_push_elem(m, v, flags) sim.map_push(sim.world, (void *)(m), SIM_VALUES(m), (v), (flags))
#define bpf_map_pop_elem(m, v) sim.map_pop(sim.world, (void *)(m), SIM_VALUES(m), (v), false)
#define bpf_map_peek_elem(m, v) sim.map_pop(sim.world, (void *)(m), SIM_VALUES(m), (v), true)
#define bpf_for_each_map_elem(m, f, context, flags) sim.map_each(sim.world, (void *)(m), SIM_SHAPE(m), (void *)(f), (context))
#define bpf_task_storage_get(m, owner, initial, flags) \
	sim.storage(sim.world, (void *)(m), SIM_STORAGE(m), (owner), (const void *)(initial), (flags))
#define bpf_task_storage_delete(m, owner) sim.storage_delete(sim.world, (void *)(m), (owner))
#define bpf_cgrp_storage_get bpf_task_storage_get
#define bpf_cgrp_storage_delete bpf_task_storage_delete
/* A simulation has no reader of ring buffers: they are always full. */
#define bpf_ringbuf_reserve(m, size, flags) ((void *)NULL)
#define bpf_ringbuf_submit(data, flags) ((void)(data))
#define bpf_ringbuf_discard(data, flags) ((void)(data))
#define bpf_ringbuf_output(m, data, size, flags) (-1L)
#define bpf_user_ringbuf_drain(m, f, context, flags) (0L)
#define bpf_perf_event_read_value(m, flags, buffer, size) (-EOPNOTSUPP)
#define bpf_kptr_xchg(place, value) ({ void *old_ = (void *)*(place); *(place) = (void *)(value); old_; })
#define bpf_per_cpu_ptr(pointer, cpu) (pointer)
#define bpf_this_cpu_ptr(pointer) (pointer)

struct bpf_timer { u64 opaque[2]; };
#define bpf_timer_init(timer, m, flags) ((void)(m), 0)
#define bpf_timer_set_callback(timer, f) sim.timer_set(sim.world, (timer), (void *)(f))
#define bpf_timer_start(timer, nsecs, flags) sim.timer_start(sim.world, (timer), (nsecs), (flags))
#define bpf_timer_cancel(timer) sim.timer_cancel(sim.world, (timer))

/* Only one CPU runs at a time in the simulator, so locks and read-copy-update are free. */
struct bpf_spin_lock { u32 val; };
struct bpf_res_spin_lock { u32 val; };
static inline void bpf_spin_lock(struct bpf_spin_lock *lock) { (void)lock; }
static inline void bpf_spin_unlock(struct bpf_spin_lock *lock) { (void)lock; }
static inline int bpf_res_spin_lock(struct bpf_res_spin_lock *lock) { (void)lock; return 0; }
static inline void bpf_res_spin_unlock(struct bpf_res_spin_lock *lock) { (void)lock; }
static inline void bpf_rcu_read_lock(void) {}
static inline void bpf_rcu_read_unlock(void) {}
static inline void bpf_preempt_disable(void) {}
static inline void bpf_preempt_enable(void) {}

/* Helpers. */
extern int snprintf(char *, size_t, const char *, ...);
extern void *calloc(size_t, size_t);
extern void free(void *);
static inline u64 bpf_ktime_get_ns(void) { return sim.now(sim.world); }
static inline u64 bpf_ktime_get_boot_ns(void) { return sim.now(sim.world); }
static inline u64 bpf_ktime_get_coarse_ns(void) { return sim.now(sim.world); }
static inline u64 bpf_jiffies64(void) { return sim.now(sim.world) / 4000000; }
static inline u32 bpf_get_prandom_u32(void) { return sim.random(sim.world); }
static inline u32 bpf_get_smp_processor_id(void) { return (u32)sim.this_cpu(sim.world); }
static inline s32 bpf_get_numa_node_id(void) { return sim.node_of(sim.world, sim.this_cpu(sim.world)); }
static inline struct task_struct *bpf_get_current_task_btf(void) { return sim.current(sim.world); }
static inline u64 bpf_get_current_task(void) { return (u64)sim.current(sim.world); }
static inline u64 bpf_get_current_pid_tgid(void)
{
	struct task_struct *p = sim.current(sim.world);
	return ((u64)p->tgid << 32) | (u32)p->pid;
}
static inline bool bpf_in_nmi(void) { return false; }
static inline bool bpf_in_hardirq(void) { return false; }
static inline bool bpf_in_serving_softirq(void) { return false; }
static inline s64 bpf_probe_read_kernel(void *to, u32 size, const void *from) { return from ? (__builtin_memcpy(to, from, size), 0) : -EFAULT; }
static inline s64 bpf_probe_read_kernel_str(void *to, u32 size, const void *from)
{
	const char *text = from;
	u32 i = 0;
	if (!text || !size)
		return -EFAULT;
	for (; i + 1 < size && text[i]; i++)
		((char *)to)[i] = text[i];
	((char *)to)[i] = 0;
	return i + 1;
}
static inline int bpf_strncmp(const char *a, u32 n, const char *b) { return __builtin_strncmp(a, b, n); }
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)
#define bpf_repeat(times) for (u64 repeat_ = 0; repeat_ < (u64)(times); repeat_++)
#define can_loop true
#define cond_break do {} while (0)
#define bpf_loop(times, f, context, flags) ({ \
	s64 done_ = 0; \
	for (; done_ < (s64)(times); done_++) if (((long (*)(u64, void *))(void *)(f))(done_, (context))) { done_++; break; } \
	done_; })
#define sim_format(how, format, args...) ({ char text_[512]; snprintf(text_, sizeof(text_), format, ##args); how(sim.world, text_); })
#define bpf_printk(format, args...) sim_format(sim.print, format, ##args)
#define scx_bpf_error(format, args...) sim_format(sim.error, format, ##args)
#define scx_bpf_exit(code, format, args...) sim_format(sim.error, format, ##args)
#define scx_bpf_dump(format, args...) do {} while (0)
#define scx_bpf_dump_header() do {} while (0)

#include "masks.h"

/* Tasks, CPUs and groups. */
static inline struct task_struct *bpf_task_from_pid(s32 pid) { return sim.task_from_pid(sim.world, pid); }
static inline struct task_struct *bpf_task_acquire(struct task_struct *p) { return p; }
static inline void bpf_task_release(struct task_struct *p) { (void)p; }
static inline s32 scx_bpf_task_cpu(const struct task_struct *p) { return sim.task_cpu(sim.world, p); }
static inline bool scx_bpf_task_running(const struct task_struct *p) { return sim.task_running(sim.world, p); }
static inline struct task_struct *scx_bpf_cpu_curr(s32 cpu) { return sim.cpu_curr(sim.world, cpu); }
static inline u32 scx_bpf_nr_cpu_ids(void) { return sim.nr_cpus(sim.world); }
static inline u32 scx_bpf_nr_node_ids(void)
{
	s32 most = 0;
	for (u32 cpu = 0; cpu < sim.nr_cpus(sim.world); cpu++)
		if (sim.node_of(sim.world, cpu) > most)
			most = sim.node_of(sim.world, cpu);
	return most + 1;
}
static inline int scx_bpf_cpu_node(s32 cpu) { return sim.node_of(sim.world, cpu); }
static inline u32 scx_bpf_cpuperf_cap(s32 cpu) { return sim.cpuperf_cap(sim.world, cpu); }
static inline u32 scx_bpf_cpuperf_cur(s32 cpu) { return sim.cpuperf_cur(sim.world, cpu); }
/* Frequencies follow the simulator's governor. */
static inline void scx_bpf_cpuperf_set(s32 cpu, u32 perf) { (void)cpu; (void)perf; }
static inline u64 scx_bpf_now(void) { return sim.now(sim.world); }
static inline u64 scx_clock_task(u32 cpu) { (void)cpu; return sim.now(sim.world); }
static inline u64 scx_clock_pelt(u32 cpu) { return sim.clock_pelt(sim.world, cpu); }
static inline u64 scx_clock_virt(u32 cpu) { (void)cpu; return sim.now(sim.world); }
static inline u64 scx_clock_irq(u32 cpu) { (void)cpu; return 0; }
static inline struct rq *scx_bpf_cpu_rq(s32 cpu)
{
	static struct rq rqs[NR_CPUS];
	if ((u32)cpu >= sim.nr_cpus(sim.world))
		return NULL;
	rqs[cpu].cpu = cpu;
	rqs[cpu].curr = scx_bpf_cpu_curr(cpu);
	rqs[cpu].clock = rqs[cpu].clock_task = sim.now(sim.world);
	rqs[cpu].clock_pelt = scx_clock_pelt(cpu);
	return &rqs[cpu];
}
extern struct cgroup sim_root;
static inline struct cgroup *sim_group(void) { return &sim_root; }
#define scx_bpf_task_cgroup(p) ((void)(p), sim_group())
#define __COMPAT_scx_bpf_task_cgroup scx_bpf_task_cgroup
static inline struct cgroup *bpf_cgroup_ancestor(struct cgroup *g, int level) { (void)g; return level ? NULL : sim_group(); }
static inline struct cgroup *bpf_cgroup_acquire(struct cgroup *g) { return g; }
static inline void bpf_cgroup_release(struct cgroup *g) { (void)g; }
static inline struct cgroup *bpf_cgroup_from_id(u64 id) { return id == sim_group()->kn->id ? sim_group() : NULL; }

/* Idle CPUs. */
enum { SIM_MASK_IDLE, SIM_MASK_IDLE_CORES, SIM_MASK_ALL };
static inline const struct cpumask *scx_bpf_get_idle_cpumask(void) { return sim.mask(sim.world, SIM_MASK_IDLE); }
static inline const struct cpumask *scx_bpf_get_idle_smtmask(void) { return sim.mask(sim.world, SIM_MASK_IDLE_CORES); }
static inline const struct cpumask *scx_bpf_get_online_cpumask(void) { return sim.mask(sim.world, SIM_MASK_ALL); }
static inline const struct cpumask *scx_bpf_get_possible_cpumask(void) { return sim.mask(sim.world, SIM_MASK_ALL); }
#define scx_bpf_get_idle_cpumask_node(node) ((void)(node), scx_bpf_get_idle_cpumask())
#define scx_bpf_get_idle_smtmask_node(node) ((void)(node), scx_bpf_get_idle_smtmask())
static inline void scx_bpf_put_cpumask(const struct cpumask *m) { (void)m; }
static inline void scx_bpf_put_idle_cpumask(const struct cpumask *m) { (void)m; }
static inline bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) { return sim.test_and_clear_idle(sim.world, cpu); }
static inline s32 scx_bpf_pick_idle_cpu(const struct cpumask *m, u64 flags) { return sim.pick_idle(sim.world, m, flags); }
static inline s32 scx_bpf_pick_any_cpu(const struct cpumask *m, u64 flags)
{
	s32 cpu = sim.pick_idle(sim.world, m, flags);
	if (cpu >= 0)
		return cpu;
	cpu = sim_distribute(m, NULL);
	return (u32)cpu < sim.nr_cpus(sim.world) ? cpu : -EBUSY;
}
#define scx_bpf_pick_idle_cpu_node(m, node, flags) ((void)(node), scx_bpf_pick_idle_cpu((m), (flags)))
#define scx_bpf_pick_any_cpu_node(m, node, flags) ((void)(node), scx_bpf_pick_any_cpu((m), (flags)))
static inline s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev, u64 wake_flags, const struct cpumask *m, u64 flags)
{
	return sim.select_default(sim.world, p, prev, wake_flags, m, flags);
}
static inline s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 wake_flags, bool *is_idle)
{
	s32 cpu = sim.select_default(sim.world, p, prev, wake_flags, NULL, 0);
	*is_idle = cpu >= 0;
	return cpu >= 0 ? cpu : prev;
}

/* Dispatch queues. */
#define scx_bpf_create_dsq(id, node) sim.create_dsq(sim.world, (id))
#define scx_bpf_destroy_dsq(id) sim.destroy_dsq(sim.world, (id))
#define scx_bpf_dsq_nr_queued(id) sim.dsq_length(sim.world, (id))
#define scx_bpf_dsq_peek(id) sim.dsq_next(sim.world, (id), NULL, 0)
#define scx_bpf_dsq_insert(p, dsq, slice, flags) sim.insert(sim.world, (p), (dsq), (slice), 0, (flags), false)
#define scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, flags) sim.insert(sim.world, (p), (dsq), (slice), (vtime), (flags), true)
#define scx_bpf_dispatch scx_bpf_dsq_insert
#define scx_bpf_dispatch_vtime scx_bpf_dsq_insert_vtime
#define scx_bpf_dsq_move_to_local(id, ...) sim.move_to_local(sim.world, (id))
#define scx_bpf_consume(id) sim.move_to_local(sim.world, (id))
#define scx_bpf_dispatch_nr_slots() sim.free_slots(sim.world)
#define scx_bpf_kick_cpu(cpu, flags) sim.kick(sim.world, (cpu), (flags))
#define scx_bpf_reenqueue_local() sim.reenqueue_local(sim.world)
#define scx_bpf_reenqueue_local_from_anywhere() ((void)sim.reenqueue_local(sim.world), 0)
#define __COMPAT_scx_bpf_reenqueue_local_from_anywhere() true
static inline void scx_bpf_task_set_slice(struct task_struct *p, u64 slice) { p->scx.slice = slice; }
static inline void scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) { p->scx.dsq_vtime = vtime; }

/* Iterators. `it__iter` remembers the queue, and what a move shall change: 1 for the slice, 2 for the virtual time. */
struct bpf_iter_scx_dsq { u64 dsq, flags, slice, vtime; u32 given; struct task_struct *next; };
#define BPF_FOR_EACH_ITER (&___it)
#define bpf_for_each(kind, item, args...) sim_each_##kind(item, args)
#define sim_each_scx_dsq(p, id, how) \
	for (struct bpf_iter_scx_dsq ___it = { (id), (how), 0, 0, 0, sim.dsq_next(sim.world, (id), NULL, (how)) }; \
	     ((p) = ___it.next) && (___it.next = sim.dsq_next(sim.world, ___it.dsq, (p), ___it.flags), true);)
#define sim_each_bits(bit, words, count) \
	for (int place_ = -1, *(bit) = &place_; sim_next_bit((const u64 *)(words), (count), &place_);)
static inline bool sim_next_bit(const u64 *words, u32 count, int *place)
{
	while (++*place < (int)(64 * count))
		if (words[*place / 64] >> (*place % 64) & 1)
			return true;
	return false;
}
#define sim_each_css(css, root, flags) for (int once_ = ((css) = (root), 1); once_; once_ = 0)
#define for_each_possible_cpu(cpu) bpf_for(cpu, 0, (s32)scx_bpf_nr_cpu_ids())
#define for_each_online_cpu(cpu) bpf_for(cpu, 0, (s32)scx_bpf_nr_cpu_ids())
#define scx_bpf_dsq_move_set_slice(it, value) ((it)->slice = (value), (it)->given |= 1, (void)0)
#define scx_bpf_dsq_move_set_vtime(it, value) ((it)->vtime = (value), (it)->given |= 2, (void)0)
#define scx_bpf_dsq_move(it, p, id, flags) \
	sim.move_task(sim.world, (it)->dsq, (p), (id), (it)->slice, (it)->vtime, (flags), (it)->given)
#define scx_bpf_dsq_move_vtime(it, p, id, flags) \
	sim.move_task(sim.world, (it)->dsq, (p), (id), (it)->slice, (it)->vtime, (flags), (it)->given | 4)
#define __COMPAT_scx_bpf_dsq_move scx_bpf_dsq_move
#define __COMPAT_scx_bpf_dsq_move_vtime scx_bpf_dsq_move_vtime
#define __COMPAT_scx_bpf_dsq_move_set_slice scx_bpf_dsq_move_set_slice
#define __COMPAT_scx_bpf_dsq_move_set_vtime scx_bpf_dsq_move_set_vtime

/* Names that schedulers use where kernels differ: the simulator has what the newest kernel has. */
#define __COMPAT_ENUM_OR_ZERO(type, value) (value)
#define __COMPAT_scx_bpf_dsq_peek(id) scx_bpf_dsq_peek(id)
#define __COMPAT_is_enq_cpu_selected(flags) (((flags) & SCX_ENQ_CPU_SELECTED) != 0)
#define __COMPAT_HAS_scx_bpf_select_cpu_and true
#define __COMPAT_scx_bpf_nr_node_ids scx_bpf_nr_node_ids
#define __COMPAT_scx_bpf_cpu_node scx_bpf_cpu_node
#define __COMPAT_scx_bpf_cpu_curr scx_bpf_cpu_curr
#define __COMPAT_scx_bpf_get_idle_cpumask_node scx_bpf_get_idle_cpumask_node
#define __COMPAT_scx_bpf_get_idle_smtmask_node scx_bpf_get_idle_smtmask_node
#define __COMPAT_scx_bpf_pick_idle_cpu_node scx_bpf_pick_idle_cpu_node
#define __COMPAT_scx_bpf_pick_any_cpu_node scx_bpf_pick_any_cpu_node
#define __COMPAT_has_generic_reenq() true
#define SCX_ENUM_INIT(skel)
static inline int scx_lib_init(void) { return 0; }

/* Lists and trees: short ones, so they are lists. */
struct bpf_rb_node { struct bpf_rb_node *next; };
struct bpf_rb_root { struct bpf_rb_node *first; };
struct bpf_list_node { struct bpf_list_node *next; };
struct bpf_list_head { struct bpf_list_node *first; };
struct bpf_refcount { int count; };
#define bpf_obj_new(type) ((type *)calloc(1, sizeof(type)))
#define bpf_obj_drop(object) free(object)
#define bpf_refcount_acquire(object) (object)
static inline struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) { return root->first; }
static inline struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node)
{
	struct bpf_rb_node **at = &root->first;
	while (*at && *at != node)
		at = &(*at)->next;
	if (!*at)
		return NULL;
	*at = node->next;
	return node;
}
#define bpf_rbtree_add(root, node, less) ({ \
	struct bpf_rb_node **at_ = &(root)->first, *new_ = (node); \
	while (*at_ && !less(new_, *at_)) at_ = &(*at_)->next; \
	new_->next = *at_; *at_ = new_; 0; })
static inline int bpf_list_push_front(struct bpf_list_head *head, struct bpf_list_node *node)
{
	node->next = head->first;
	head->first = node;
	return 0;
}
static inline int bpf_list_push_back(struct bpf_list_head *head, struct bpf_list_node *node)
{
	struct bpf_list_node **at = &head->first;
	while (*at)
		at = &(*at)->next;
	node->next = NULL;
	*at = node;
	return 0;
}
static inline struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head)
{
	struct bpf_list_node *node = head->first;
	if (node)
		head->first = node->next;
	return node;
}

/* Arithmetic. */
#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
#define __maybe_unused __attribute__((unused))
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define U64_MAX (~0ULL)
#define U32_MAX (~0U)
#define S64_MAX ((s64)(U64_MAX >> 1))
#define __calc_avg(old, new, decay) ({ typeof(decay) t_ = 1 << (decay); ((old) * (t_ - 1) + (new)) / t_; })
static inline s64 time_delta(u64 after, u64 before) { return (s64)(after - before) > 0 ? (s64)(after - before) : 0; }
static inline bool time_after(u64 a, u64 b) { return (s64)(b - a) < 0; }
static inline bool time_before(u64 a, u64 b) { return time_after(b, a); }
static inline bool time_after_eq(u64 a, u64 b) { return (s64)(a - b) >= 0; }
static inline bool time_before_eq(u64 a, u64 b) { return time_after_eq(b, a); }
static inline bool time_in_range(u64 a, u64 b, u64 c) { return time_after_eq(a, b) && time_before_eq(a, c); }
static inline bool time_in_range_open(u64 a, u64 b, u64 c) { return time_after_eq(a, b) && time_before(a, c); }
static inline u32 log2_u32(u32 v) { return v ? 32 - __builtin_clz(v) : 1; }
static inline u32 log2_u64(u64 v) { return v ? 64 - __builtin_clzll(v) : 1; }
static inline u64 __sqrt_u64(u64 x)
{
	u64 low = 0, high = 1ULL << 32;
	while (low + 1 < high) {
		u64 middle = (low + high) / 2;
		if (middle * middle <= x)
			low = middle;
		else
			high = middle;
	}
	return low;
}
static inline int ctzll(u64 v) { return v ? __builtin_ctzll(v) : 64; }
static inline u64 get_prandom_u64(void) { return ((u64)bpf_get_prandom_u32() << 32) | bpf_get_prandom_u32(); }
static inline u64 scale_by_task_weight(const struct task_struct *p, u64 value) { return value * p->scx.weight / 100; }
static inline u64 scale_by_task_weight_inverse(const struct task_struct *p, u64 value) { return value * 100 / p->scx.weight; }
static inline bool is_migration_disabled(const struct task_struct *p) { return p->migration_disabled != 0; }

/* The simulator does not count events. */
struct scx_event_stats { u64 none; };
#define scx_bpf_events(events, size) ((void)(events))
#define __COMPAT_scx_bpf_events(events, size) ((void)(events))
#define scx_read_event(events, name) ((void)(events), 0LL)

/* Exit reports: the simulator keeps the text of an error itself. */
struct user_exit_info { int kind; s64 exit_code; };
#define UEI_DEFINE(name) struct user_exit_info name
#define UEI_RECORD(name, info) ((name).kind = (info)->kind)

#endif
