/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Speed-up factors of threads, computed from their counts. This happens once per sampling period, and when another set counts a
 * thread, or another class of CPUs runs it, than before. metric/steps.rs and metric/round.rs of the model have the same
 * arithmetic and rounds for user space.
 *
 * This is done only if a scheduler in the kernel needs the factors: `on_switch_judging` is then loaded.
 */
#pragma once

/* By class of CPUs. */
struct model models[MAX_JUDGED];

/* State of the judgement of threads, by slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct judgement);
} judgements SEC(".maps");

/* Ratio of a feature in a set since the last judgement; returns false if the denominator did not count. */
static __always_inline bool ratio_of(const struct feature *f, u32 set, const struct row *row, const struct judgement *j, u64 *ratio)
{
	u32 above = BOUNDED(f->above[BOUNDED(set, MAX_SETS)], MAX_EVENTS);
	u32 below = BOUNDED(f->below[BOUNDED(set, MAX_SETS)], MAX_EVENTS);
	u64 under = row->counts[below] - j->counts[below];

	if (!under)
		return false;
	*ratio = ((row->counts[above] - j->counts[above]) << FEATURE_BITS) / under;
	return true;
}

/*
 * Contribution of one feature: the last step that its value reaches. This function and `weigh` are separate also for the
 * verifier, which would otherwise go through them again for each call and each state.
 */
__noinline s64 addition_of(u32 class, u32 feature, u64 value)
{
	const struct feature *f = &models[BOUNDED(class, MAX_JUDGED)].features[BOUNDED(feature, MAX_FEATURES)];
	s64 add = 0;
	u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_STEPS && i < f->nr_steps; i++) {
		if (f->steps[i].least_q20 > value)
			break;
		add = f->steps[i].add_q16;
	}
	return add;
}

/* True if a ratio differs by more than a quarter from the running mean of its phase. */
static __always_inline bool is_away(u64 ratio, u64 mean)
{
	return (ratio > mean ? ratio - mean : mean - ratio) > mean / 4;
}

/* Running mean of a phase's ratios after one more, which has a quarter of the weight. */
static __always_inline u64 running_mean(u64 mean, u64 ratio)
{
	return mean - mean / 4 + ratio / 4;
}

/*
 * Adds the counts of a set to the round of its class of CPUs. A set that does not distinguish phases belongs to any round. A
 * set in which the thread did nothing belongs to none. Once each set has been seen, the round is complete: the factor is the
 * sum of its features.
 */
__noinline int weigh(u64 thread, u32 nr, u32 kind)
{
	u32 class = kind / settings.sets, set = BOUNDED(kind % settings.sets, MAX_SETS), all = (1U << settings.sets) - 1;
	u32 row_nr = nr * settings.kinds + kind, i;
	const struct model *model = &models[BOUNDED(class, MAX_JUDGED)];
	s64 factor = model->base_q16;
	const struct row *row;
	struct judgement *j;
	struct round *round;
	u64 ratio;

	if (class >= MAX_JUDGED || !model->nr_features)
		return 0;
	j = bpf_map_lookup_elem(&judgements, &nr);
	row = bpf_map_lookup_elem(&rows, &row_nr);
	if (!j || !row)
		return 0;
	round = &j->rounds[BOUNDED(class, MAX_JUDGED)];
	if (model->features[0].sets >> set & 1) {
		if (!ratio_of(&model->features[0], set, row, j, &ratio))
			return 0;
		if (round->mean_q20 && is_away(ratio, round->mean_q20))
			round->mean_q20 = round->seen = 0;
		round->mean_q20 = round->mean_q20 ? running_mean(round->mean_q20, ratio) : ratio;
	}
	round->seen |= 1U << set;
#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_FEATURES && i < model->nr_features; i++) {
		const struct feature *f = &model->features[i];

		if (f->sets >> set & 1)
			round->adds[i] = ratio_of(f, set, row, j, &ratio) ? addition_of(class, i, ratio) : 0;
		factor += round->adds[i];
	}
	if (round->seen != all)
		return 0;
	if (factor < 1)
		factor = 1;
	bpf_map_update_elem(&metrics, &thread, &factor, 0);
	return 0;
}

/* Starts the counts of the next judgement. */
static __always_inline void judge_from(struct judgement *j, u32 kind, const struct row *row, u64 at_ns)
{
	__builtin_memcpy(j->counts, row->counts, sizeof(j->counts));
	j->kind = kind;
	j->judged_ns = at_ns;
}

/* State of the judgement of the thread in a slot; empty for a thread that has just got it. */
static __always_inline struct judgement *judgement_of(u32 nr, const struct slot *slot)
{
	struct judgement *j = bpf_map_lookup_elem(&judgements, &nr);

	if (j && j->forked_ns != slot->forked_ns) {
		__builtin_memset(j, 0, sizeof(*j));
		j->forked_ns = slot->forked_ns;
	}
	return j;
}

/*
 * Runs before new counts are added to a row. If the thread was judged by another row so far, that row is weighed, if it has
 * enough counts. The thread is then judged by this row from its start.
 */
static __always_inline void judge_turn(u64 thread, struct judgement *j, u32 nr, u32 kind, const struct row *row, u64 came_ns)
{
	if (j->judged_ns && j->kind == kind)
		return;
	if (j->judged_ns && came_ns - j->judged_ns >= control.period_ns / 2)
		weigh(thread, nr, j->kind);
	judge_from(j, kind, row, came_ns);
}

/* Runs after new counts are added: weighs the row once per sampling period. */
static __always_inline void judge(u64 thread, struct judgement *j, u32 nr, u32 kind, const struct row *row, u64 now)
{
	if (now - j->judged_ns < control.period_ns)
		return;
	weigh(thread, nr, kind);
	judge_from(j, kind, row, now);
}
