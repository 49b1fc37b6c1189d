/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The admission table: where threads go that come or wake between decisions of the policy; and what it compares, where the
 * kernel computes that itself.
 */
#pragma once

/* The ratio that a feature is about, since another time; whether there was anything to take it by. */
static __always_inline bool ratio_of(const struct feature *f, const struct sum *now, const struct sum *before, u64 *ratio)
{
	u32 above = BOUNDED(f->above, MAX_EVENTS), below = BOUNDED(f->below, MAX_EVENTS);
	u64 under = now->counts[below] - before->counts[below];

	if (!under)
		return false;
	*ratio = ((now->counts[above] - before->counts[above]) << FEATURE_BITS) / under;
	return true;
}

/* What one feature adds: the last step that its value reaches. */
static __always_inline s64 factor_of(const struct feature *f, const struct sum *now, const struct sum *before)
{
	u64 value;
	s64 add = 0;
	u32 i;

	if (!ratio_of(f, now, before, &value))
		return 0;
	bpf_for(i, 0, f->nr_steps) {
		const struct step *step = &f->steps[BOUNDED(i, MAX_STEPS)];

		if (step->least_q20 > value)
			break;
		add = step->add_q16;
	}
	return add;
}

/*
 * A ratio that keeps away from what it was when the phase began, by a quarter of that, for two judgements: another phase has
 * begun. What threads are like on other core types is another matter, and unknown from then on.
 */
static __always_inline void follow_phase(struct task_struct *p, struct ledger *l, u32 type, u64 ratio)
{
	struct phase *phase = &l->phases[BOUNDED(type, MAX_TYPES)];
	u64 away = ratio > phase->began_q20 ? ratio - phase->began_q20 : phase->began_q20 - ratio;
	bool known = phase->began_q20;
	u32 i;

	if (known && away <= phase->began_q20 / 4) {
		phase->doubts = 0;
		return;
	}
	if (known && !phase->doubts++)
		return;
	if (known) {
		for (i = 0; i < MAX_TYPES; i++)
			l->phases[i].began_q20 = 0;
		__sync_fetch_and_add(&counters.phases, 1);
		tell(p, TOLD_PHASE, l->program, 0, 0);
	}
	phase->began_q20 = ratio;
	phase->doubts = 0;
}

/* Computes the metric of a thread, once per sampling period, from what its core type counted since the last time. */
static __always_inline void judge(struct task_struct *p, struct ledger *l, u64 now)
{
	u32 type = BOUNDED(type_of(l->cpu), MAX_TYPES), set = BOUNDED(control.judged_set, MAX_SETS), row = row_of(type, set), i;
	const struct model *model = &models[type];
	const struct sum *sum = &l->sums[row];
	s64 factor = model->base_q16;
	u64 ratio;

	if (!model->nr_features || l->set != set || now - l->judged_ns < control.period_ns)
		return;
	if (l->judged_ns && l->judged_row == row && ratio_of(&model->features[0], sum, &l->judged, &ratio)) {
		bpf_for(i, 0, model->nr_features)
			factor += factor_of(&model->features[BOUNDED(i, MAX_FEATURES)], sum, &l->judged);
		l->metric_q16 = factor > 1 ? factor : 1;
		follow_phase(p, l, type, ratio);
	}
	l->judged = *sum;
	l->judged_row = row;
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
		settle(t, target);
}

/* One that wakes and of which nothing is known stays where the policy put it. */
static __always_inline void admit_waking(struct task_struct *p, struct thread *t)
{
	struct ledger *l;
	u32 target;

	if (!control.tables[control.admission & 1].nr_rows)
		return;
	l = ledger_of(p, t);
	target = l && l->metric_q16 ? admit(l->metric_q16) : NONE;
	if (target != NONE)
		settle(t, target);
}
