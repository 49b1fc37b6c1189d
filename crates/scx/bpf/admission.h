/* SPDX-License-Identifier: GPL-2.0 */
/* The admission table: where threads go that come or wake between decisions of the policy. */
#pragma once

/* Computes the metric of a thread once per sampling period. */
static __always_inline void judge(struct ledger *l, u64 now)
{
	const struct admission *table = &control.tables[control.admission & 1];

	if (table->metric == METRIC_NONE || now - l->judged_ns < settings.period_ns)
		return;
	l->judged_ns = now;
}

/* The target of the first row that a value reaches; a thread without the metric goes to the last. */
static __always_inline u32 admit(u64 metric_q16)
{
	const struct admission *table = &control.tables[control.admission & 1];
	u32 i, nr = table->nr_rows;

	if (!nr || nr > MAX_ROWS)
		return NONE;
	bpf_for(i, 0, nr) {
		const struct row *row = &table->rows[BOUNDED(i, MAX_ROWS)];

		if (i == nr - 1 || (metric_q16 && metric_q16 >= row->least_q16))
			return row->target;
	}
	return NONE;
}

static __always_inline void admit_new(struct thread *t)
{
	u32 target = admit(0);

	if (target != NONE)
		t->target = target;
}

static __always_inline void admit_waking(struct task_struct *p, struct thread *t)
{
	struct ledger *l = ledger_of(p, t);
	u32 target = l ? admit(l->metric_q16) : NONE;

	if (target != NONE)
		t->target = target;
}
