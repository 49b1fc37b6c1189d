/* Masks of CPUs. A part of `common.bpf.h`. */
#ifndef COUNTERSTEER_MASKS_H
#define COUNTERSTEER_MASKS_H

#define SIM_WORDS (NR_CPUS / 64)
static inline const struct cpumask *cast_mask(struct bpf_cpumask *mask) { return (const struct cpumask *)mask; }
static inline struct bpf_cpumask *bpf_cpumask_create(void) { return calloc(1, sizeof(struct bpf_cpumask)); }
static inline struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *m) { m->usage++; return m; }
static inline void bpf_cpumask_release(struct bpf_cpumask *m) { if (m && --m->usage < 0) free(m); }
static inline bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *m) { return cpu < NR_CPUS && (m->bits[cpu / 64] >> (cpu % 64) & 1); }
static inline void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *m) { if (cpu < NR_CPUS) m->cpumask.bits[cpu / 64] |= 1UL << (cpu % 64); }
static inline void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *m) { if (cpu < NR_CPUS) m->cpumask.bits[cpu / 64] &= ~(1UL << (cpu % 64)); }
static inline bool bpf_cpumask_test_and_set_cpu(u32 cpu, struct bpf_cpumask *m)
{
	bool was = bpf_cpumask_test_cpu(cpu, &m->cpumask);
	bpf_cpumask_set_cpu(cpu, m);
	return was;
}
static inline bool bpf_cpumask_test_and_clear_cpu(u32 cpu, struct bpf_cpumask *m)
{
	bool was = bpf_cpumask_test_cpu(cpu, &m->cpumask);
	bpf_cpumask_clear_cpu(cpu, m);
	return was;
}
/* The lowest CPU from `from` on that both masks have; the number of CPUs if there is none. */
static inline u32 sim_next(const struct cpumask *a, const struct cpumask *b, u32 from)
{
	u32 n = sim.nr_cpus(sim.world);
	for (u32 cpu = from; cpu < n; cpu++)
		if (bpf_cpumask_test_cpu(cpu, a) && (!b || bpf_cpumask_test_cpu(cpu, b)))
			return cpu;
	return n;
}
static inline u32 sim_distribute(const struct cpumask *a, const struct cpumask *b)
{
	static u32 last[NR_CPUS];
	u32 *mine = &last[bpf_get_smp_processor_id() % NR_CPUS], n = sim.nr_cpus(sim.world), cpu = sim_next(a, b, *mine + 1);
	if (cpu >= n)
		cpu = sim_next(a, b, 0);
	if (cpu < n)
		*mine = cpu;
	return cpu;
}
static inline u32 bpf_cpumask_first(const struct cpumask *m) { return sim_next(m, NULL, 0); }
static inline u32 bpf_cpumask_first_and(const struct cpumask *a, const struct cpumask *b) { return sim_next(a, b, 0); }
static inline u32 bpf_cpumask_first_zero(const struct cpumask *m)
{
	u32 cpu = 0, n = sim.nr_cpus(sim.world);
	while (cpu < n && bpf_cpumask_test_cpu(cpu, m))
		cpu++;
	return cpu;
}
static inline u32 bpf_cpumask_any_distribute(const struct cpumask *m) { return sim_distribute(m, NULL); }
static inline u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b) { return sim_distribute(a, b); }
static inline void bpf_cpumask_setall(struct bpf_cpumask *m)
{
	for (u32 cpu = 0; cpu < sim.nr_cpus(sim.world); cpu++)
		bpf_cpumask_set_cpu(cpu, m);
}
static inline void bpf_cpumask_clear(struct bpf_cpumask *m) { __builtin_memset(&m->cpumask, 0, sizeof(m->cpumask)); }
static inline void bpf_cpumask_copy(struct bpf_cpumask *to, const struct cpumask *from) { to->cpumask = *from; }
static inline bool bpf_cpumask_and(struct bpf_cpumask *to, const struct cpumask *a, const struct cpumask *b)
{
	unsigned long any = 0;
	for (int i = 0; i < SIM_WORDS; i++)
		any |= to->cpumask.bits[i] = a->bits[i] & b->bits[i];
	return any;
}
static inline void bpf_cpumask_or(struct bpf_cpumask *to, const struct cpumask *a, const struct cpumask *b)
{
	for (int i = 0; i < SIM_WORDS; i++)
		to->cpumask.bits[i] = a->bits[i] | b->bits[i];
}
static inline void bpf_cpumask_xor(struct bpf_cpumask *to, const struct cpumask *a, const struct cpumask *b)
{
	for (int i = 0; i < SIM_WORDS; i++)
		to->cpumask.bits[i] = a->bits[i] ^ b->bits[i];
}
static inline bool bpf_cpumask_equal(const struct cpumask *a, const struct cpumask *b) { return !__builtin_memcmp(a, b, sizeof(*a)); }
static inline bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	for (int i = 0; i < SIM_WORDS; i++)
		if (a->bits[i] & b->bits[i])
			return true;
	return false;
}
static inline bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b)
{
	for (int i = 0; i < SIM_WORDS; i++)
		if (a->bits[i] & ~b->bits[i])
			return false;
	return true;
}
static inline u32 bpf_cpumask_weight(const struct cpumask *m)
{
	u32 count = 0;
	for (int i = 0; i < SIM_WORDS; i++)
		count += __builtin_popcountl(m->bits[i]);
	return count;
}
static inline bool bpf_cpumask_empty(const struct cpumask *m) { return !bpf_cpumask_weight(m); }
static inline bool bpf_cpumask_full(const struct cpumask *m) { return bpf_cpumask_weight(m) >= sim.nr_cpus(sim.world); }
#define bpf_cpumask_populate(mask, from, size) (__builtin_memcpy((mask), (from), (size)), 0)
#define __COMPAT_bpf_cpumask_populate bpf_cpumask_populate

#endif
