/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The admission table: where threads go that come or wake between decisions of the policy; and what it compares, where the
 * kernel computes that itself.
 */
#pragma once

/* The ratio that a feature is about, as a set has it, since another time; whether there was anything to take it by. */
static __always_inline bool ratio_of(const struct feature *f, u32 set, const struct sum *now, const struct sum *before,
				     u64 *ratio)
{
	u32 above = BOUNDED(f->above[BOUNDED(set, MAX_SETS)], MAX_EVENTS);
	u32 below = BOUNDED(f->below[BOUNDED(set, MAX_SETS)], MAX_EVENTS);
	u64 under = now->counts[below] - before->counts[below];

	if (!under)
		return false;
	*ratio = ((now->counts[above] - before->counts[above]) << FEATURE_BITS) / under;
	return true;
}

/* What one feature adds: the last step that its value reaches. */
static __always_inline s64 factor_of(const struct feature *f, u64 value)
{
	s64 add = 0;
	u32 i;

	bpf_for(i, 0, f->nr_steps) {
		const struct step *step = &f->steps[BOUNDED(i, MAX_STEPS)];

		if (step->least_q20 > value)
			break;
		add = step->add_q16;
	}
	return add;
}

/* By more than a quarter. */
static __always_inline bool is_away(u64 ratio, u64 began)
{
	return (ratio > began ? ratio - began : began - ratio) > began / 4;
}

/*
 * A ratio that keeps away from what it was when the phase began, by a quarter of that, for two judgements: another phase has
 * begun. What threads are like on other core types is another matter, and unknown from then on.
 */
static __always_inline void follow_phase(struct task_struct *p, struct ledger *l, u32 type, u64 ratio)
{
	struct phase *phase = &l->phases[BOUNDED(type, MAX_TYPES)];
	bool known = phase->began_q20;
	u32 i;

	if (known && !is_away(ratio, phase->began_q20)) {
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

/*
 * Takes what a set has counted into the round of its core type: see metric/round.rs, which has the same rule. A set that cannot
 * tell phases apart belongs to any; one in which the thread did nothing to none.
 */
static __noinline void weigh(struct task_struct *p, struct ledger *l, u32 row)
{
	u32 type = BOUNDED(row / MAX_SETS, MAX_TYPES), set = BOUNDED(row, MAX_SETS), i;
	const struct sum *sum = &l->sums[BOUNDED(row, MAX_TYPES * MAX_SETS)];
	const struct model *model = &models[type];
	struct round *round = &l->rounds[type];
	s64 factor = model->base_q16;
	u64 ratio;

	if (!model->nr_features || !(control.sets >> set & 1))
		return;
	if (model->features[0].sets >> set & 1) {
		if (!ratio_of(&model->features[0], set, sum, &l->judged, &ratio))
			return;
		if (round->began_q20 && is_away(ratio, round->began_q20))
			round->began_q20 = round->seen = 0;
		if (!round->began_q20)
			round->began_q20 = ratio;
		follow_phase(p, l, type, ratio);
	}
	/* Of sets that count no more nothing is left. */
	round->seen = (round->seen & control.sets) | 1U << set;
	bpf_for(i, 0, model->nr_features) {
		const struct feature *f = &model->features[BOUNDED(i, MAX_FEATURES)];
		s64 *add = &round->adds[BOUNDED(i, MAX_FEATURES)];

		if (f->sets >> set & 1)
			*add = ratio_of(f, set, sum, &l->judged, &ratio) ? factor_of(f, ratio) : 0;
		factor += *add;
	}
	if (round->seen == control.sets)
		l->metric_q16 = factor > 1 ? factor : 1;
}

/* What a thread is judged by next begins here. */
static __always_inline void judge_from(struct ledger *l, u32 row, u64 now)
{
	l->judged = l->sums[row];
	l->judged_row = row;
	l->judged_ns = now;
}

/* Computes the metric of a thread, once per sampling period, from what a set counted on a core type since the last time. */
static __always_inline void judge(struct task_struct *p, struct ledger *l, u64 now)
{
	u32 row = row_of(type_of(l->cpu), l->set);

	if (!l->judged_ns || l->judged_row != row || now - l->judged_ns < control.period_ns)
		return;
	weigh(p, l, row);
	judge_from(l, row, now);
}

/*
 * A thread that is about to be counted by another set, or on another core type, than before: what that counted is weighed, if
 * there was enough of it.
 */
static __always_inline void judge_turn(struct task_struct *p, struct ledger *l, u64 now)
{
	u32 row = row_of(type_of(l->cpu), l->set);

	if (!l->since_ns || (l->judged_ns && l->judged_row == row))
		return;
	if (l->judged_ns && now - l->judged_ns >= control.period_ns / 2)
		weigh(p, l, l->judged_row);
	judge_from(l, row, now);
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
