/* SPDX-License-Identifier: GPL-2.0 */
/* Admission table: targets for threads that start or wake between decisions of the policy, and the metric that it compares. */
#pragma once

/* Speed-up factor that was computed for the thread; 0 if unknown. */
static __always_inline u64 factor_of(struct task_struct *p)
{
	u64 thread = (u64)p, *factor = bpf_map_lookup_elem(&metrics, &thread);

	return factor ? *factor : 0;
}

static __always_inline void forget_factor(struct task_struct *p)
{
	u64 thread = (u64)p;

	bpf_map_delete_elem(&metrics, &thread);
}

/* Target of the first row that a value reaches; a thread without the metric goes to the last. */
static __always_inline u32 admit(u64 metric_q16)
{
	const struct admission *table = &control.tables[control.admission & 1];
	u32 i, nr = table->nr_rows;

	if (!nr || nr > MAX_ROWS)
		return NONE;
	bpf_for(i, 0, nr) {
		const struct admission_row *row = &table->rows[BOUNDED(i, MAX_ROWS)];

		if (i == nr - 1 || (metric_q16 && metric_q16 >= row->least_q16))
			return row->target;
	}
	return NONE;
}

static __always_inline void admit_new(struct thread *t)
{
	u32 target = admit(0);

	if (target != NONE)
		settle(t, target);
}

/* A thread that wakes without a known metric stays where the policy put it. */
static __always_inline void admit_waking(struct task_struct *p, struct thread *t)
{
	const struct admission *table = &control.tables[control.admission & 1];
	u64 metric_q16;
	u32 target;

	if (!table->nr_rows || !t->followed)
		return;
	metric_q16 = table->metric == METRIC_SF ? factor_of(p) : t->metric_q16;
	target = metric_q16 ? admit(metric_q16) : NONE;
	if (target != NONE)
		settle(t, target);
}
