//! Sets of CPUs, derived from the possibly contradictory files of each CPU.
//!
//! Input: for each CPU, the set that its file claims (its core, or the CPUs that share its cache), if any. Output: disjoint
//! sets. Two CPUs belong together if both claim so. A CPU without a claim joins a set if at least half of the members that have a
//! claim name it.

use std::collections::BTreeMap;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

/// Claims by CPU; `None` if its file is missing.
pub(super) type Claims = BTreeMap<CpuId, Option<CpuSet>>;

/// CPUs that are joined step by step.
struct Joined {
    parents: Vec<usize>,
}

impl Joined {
    fn new(cpus: impl Iterator<Item = CpuId>) -> Self {
        let most = cpus.map(|cpu| cpu.index() + 1).max().unwrap_or(0);
        Self {
            parents: (0..most).collect(),
        }
    }

    fn root(&mut self, cpu: usize) -> usize {
        let mut at = cpu;
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    fn join(&mut self, a: CpuId, b: CpuId) {
        let (a, b) = (self.root(a.index()), self.root(b.index()));
        self.parents[a.max(b)] = a.min(b);
    }

    /// Returns the sets among these CPUs, by lowest CPU.
    fn sets(mut self, among: impl Iterator<Item = CpuId>) -> Vec<CpuSet> {
        let mut sets: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for cpu in among {
            sets.entry(self.root(cpu.index())).or_default().insert(cpu);
        }
        sets.into_values().collect()
    }
}

/// Returns the sets that the CPUs agree on, and the CPUs that disagree.
pub(super) fn sets(claims: &Claims) -> (Vec<CpuSet>, CpuSet) {
    let known = || {
        claims
            .iter()
            .filter_map(|(cpu, set)| Some((*cpu, set.as_ref()?)))
    };
    let mut joined = Joined::new(claims.keys().copied());
    let mut answers: Vec<Option<&CpuSet>> = vec![None; joined.parents.len()];
    known().for_each(|(cpu, claimed)| answers[cpu.index()] = Some(claimed));
    for (cpu, claimed) in known() {
        // Each pair is seen from its lower CPU.
        for other in claimed.iter().filter(|other| *other > cpu) {
            let answer = answers.get(other.index()).copied().flatten();
            if answer.is_some_and(|set| set.contains(cpu)) {
                joined.join(cpu, other);
            }
        }
    }
    let mut sets = joined.sets(known().map(|(cpu, _)| cpu));
    join_silent(claims, &mut sets);
    let all: CpuSet = claims.keys().copied().collect();
    let kept: BTreeMap<CpuId, &CpuSet> = sets
        .iter()
        .flat_map(|set| set.iter().map(move |cpu| (cpu, set)))
        .collect();
    let denied = known().filter(|(cpu, claimed)| claimed.intersection(&all) != *kept[cpu]);
    let denied = denied.map(|(cpu, _)| cpu).collect();
    (sets, denied)
}

/// Adds each CPU without a claim to the first set of which at least half claim it.
fn join_silent(claims: &Claims, sets: &mut [CpuSet]) {
    let silent = claims.iter().filter(|(_, claimed)| claimed.is_none());
    let silent: CpuSet = silent.map(|(cpu, _)| *cpu).collect();
    // Numbers of claims by CPU and set.
    let mut wanted: BTreeMap<CpuId, BTreeMap<usize, usize>> = BTreeMap::new();
    for (nth, set) in sets.iter().enumerate() {
        let claimed = set.iter().filter_map(|cpu| claims.get(&cpu)?.as_ref());
        for cpu in
            claimed.flat_map(|claimed| claimed.intersection(&silent).iter().collect::<Vec<_>>())
        {
            *wanted.entry(cpu).or_default().entry(nth).or_default() += 1;
        }
    }
    // Members that join have no claim, and no vote on others.
    let voters: Vec<usize> = sets.iter().map(CpuSet::len).collect();
    for (cpu, counts) in wanted {
        let most = |(nth, count): (usize, usize)| (2 * count >= voters[nth]).then_some(nth);
        if let Some(nth) = counts.into_iter().find_map(most) {
            sets[nth].insert(cpu);
        }
    }
}

/// Returns the sets, united if they overlap or if a block is partly inside, so that no block is cut.
pub(super) fn united(sets: &[CpuSet], blocks: &[CpuSet]) -> Vec<CpuSet> {
    let mut joined = Joined::new(sets.iter().chain(blocks).flat_map(CpuSet::iter));
    let mut among: CpuSet = sets.iter().flat_map(CpuSet::iter).collect();
    let touched: Vec<&CpuSet> = blocks.iter().filter(|b| b.intersects(&among)).collect();
    for set in sets.iter().chain(touched) {
        let first = set.lowest().unwrap_or_default();
        for cpu in set.iter() {
            joined.join(first, cpu);
            among.insert(cpu);
        }
    }
    joined.sets(among.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// Returns the result for claims of CPUs 0, 1, 2, ...; `-` is no claim.
    fn agreed(claims: &[&str]) -> (String, String) {
        let claims = claims
            .iter()
            .map(|list| (*list != "-").then(|| set(list)))
            .enumerate()
            .map(|(cpu, claimed)| (CpuId::from_index(cpu), claimed))
            .collect();
        let (sets, denied) = sets(&claims);
        let texts: Vec<String> = sets.iter().map(ToString::to_string).collect();
        (texts.join(" "), denied.to_string())
    }

    #[test]
    fn cpus_belong_together_where_both_say_so() {
        let of = |sets: &str, denied: &str| (sets.to_owned(), denied.to_owned());
        assert_eq!(agreed(&["0-1", "0-1", "2", "3"]), of("0-1 2 3", ""));
        assert_eq!(agreed(&["0-1", "-", "2-3", "2-3"]), of("0-1 2-3", ""));
        assert_eq!(agreed(&["0-2", "0-1", "2-3", "2-3"]), of("0-1 2-3", "0"));
        assert_eq!(agreed(&["0-3", "0-1,3", "2", "-"]), of("0-1,3 2", "0"));
        assert_eq!(agreed(&["-", "-"]), of("", ""));
        // One claim is enough for all CPUs that it names.
        assert_eq!(agreed(&["0-3", "-", "-", "-"]), of("0-3", ""));
        assert_eq!(
            agreed(&["-", "-", "0-5", "-", "-", "-", "6-7", "-"]),
            of("0-5 6-7", "")
        );
    }

    #[test]
    fn sets_unite_where_they_overlap_or_cut_a_block() {
        let apart = [set("0-1"), set("2-3")];
        assert_eq!(united(&apart, &[set("0-1")]), apart);
        assert_eq!(united(&apart, &[set("1-2"), set("6-7")]), [set("0-3")]);
        assert_eq!(
            united(&[set("0-1"), set("0-1"), set("5")], &[]),
            [set("0-1"), set("5")]
        );
    }
}
