//! Domain tree: which CPUs are interchangeable.
//!
//! Input: a topology, and the special CPUs (some threads are not allowed there, others are). Output: for a partly filled
//! machine, one CPU of each class of equivalent ones.
//!
//! Domains nest from memory domains and sockets over shared caches to core types, cores and CPUs. Two subtrees of one parent
//! with the same shape can be swapped without changing any prediction. Of the empty ones, only the first has to be tried.
//! Threads are distinguished, so every mapping occurs exactly once up to such swaps.

use std::collections::BTreeMap;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;

use crate::relabel::matched;

/// Index of the root domain, the machine.
const ROOT: usize = 0;

struct DomainNode {
    parent: usize,
    /// Identifier of the subtree's shape. Subtrees of one parent with the same shape can be swapped without changing a
    /// prediction.
    shape: u32,
    children: Vec<usize>,
    leaves: usize,
    cpu: Option<CpuId>,
}

/// Tree of domains, from the machine to its CPUs.
pub(super) struct DomainTree {
    nodes: Vec<DomainNode>,
    leaf: Vec<usize>,
}

/// Number of threads in each domain of a tree, and the conditions for a balanced mapping.
pub(super) struct DomainFill {
    used: Vec<u32>,
    /// Upper bound on the number of threads per CPU.
    pub most: u32,
    /// Lower bound on the number of threads per CPU.
    least: u32,
    /// Number of threads that CPUs below the lower bound still lack, summed over the CPUs.
    wanting: u32,
    /// Number of cores directly in each domain that hold no thread.
    free_cores: Vec<u32>,
    /// Number of cores directly in each domain that hold at least two threads.
    crowded_cores: Vec<u32>,
    /// Number of empty cores that need a thread, because an equal core of the same domain holds at least two.
    owed: u32,
}

impl DomainTree {
    pub fn new(topology: &Topology, special: &[&CpuSet]) -> Self {
        let mut tree = Self {
            nodes: vec![DomainNode::under(ROOT)],
            leaf: Vec::with_capacity(topology.cpus.len()),
        };
        let mut rows: BTreeMap<(usize, u8, u32), usize> = BTreeMap::new();
        let mut keys = vec![String::new()];
        for cpu in 0..topology.cpus.len() {
            let mut at = ROOT;
            for (kind, number, traits) in path(topology, cpu, special) {
                at = *rows.entry((at, kind, number)).or_insert_with(|| {
                    tree.nodes.push(DomainNode::under(at));
                    keys.push(format!("{kind} {traits}"));
                    let row = tree.nodes.len() - 1;
                    tree.nodes[at].children.push(row);
                    row
                });
            }
            tree.nodes[at].cpu = Some(topology.cpus[cpu].id);
            tree.leaf.push(at);
        }
        tree.find_shapes(keys);
        tree
    }

    fn find_shapes(&mut self, keys: Vec<String>) {
        let mut known = BTreeMap::new();
        // Children have higher indices than their parents, so this order visits children first.
        for row in (0..self.nodes.len()).rev() {
            let mut below: Vec<u32> = self.nodes[row]
                .children
                .iter()
                .map(|c| self.nodes[*c].shape)
                .collect();
            below.sort_unstable();
            let fresh = known.len() as u32;
            self.nodes[row].shape = *known.entry((keys[row].clone(), below)).or_insert(fresh);
            let leaves: usize = self.nodes[row]
                .children
                .iter()
                .map(|c| self.nodes[*c].leaves)
                .sum();
            self.nodes[row].leaves = leaves.max(1);
        }
    }

    /// Returns one CPU of each class of equivalent CPUs that can take another thread.
    pub fn candidates(&self, fill: &DomainFill) -> Vec<CpuId> {
        let mut found = Vec::new();
        self.collect(ROOT, fill, &mut found);
        found
    }

    fn collect(&self, row: usize, fill: &DomainFill, found: &mut Vec<CpuId>) {
        if let Some(cpu) = self.nodes[row].cpu {
            found.push(cpu);
            return;
        }
        let children = &self.nodes[row].children;
        for (nth, &child) in children.iter().enumerate() {
            let empty = fill.used[child] == 0;
            let twin =
                |c: &usize| fill.used[*c] == 0 && self.nodes[*c].shape == self.nodes[child].shape;
            let full = fill.used[child] as usize >= self.nodes[child].leaves * fill.most as usize;
            let repeated = empty && children[..nth].iter().any(twin);
            if !full && !repeated {
                self.collect(child, fill, found);
            }
        }
    }

    fn path_to(&self, cpu: CpuId) -> Vec<usize> {
        let mut path = vec![self.leaf[cpu.index()]];
        while let Some(&row) = path.last().filter(|r| **r != ROOT) {
            path.push(self.nodes[row].parent);
        }
        path.reverse();
        path
    }

    /// Returns the canonical form of a mapping, which is equal for all mappings that differ only by swaps of equivalent CPUs.
    pub fn canonical(&self, assignment: &[CpuId]) -> Vec<CpuId> {
        let mut image: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut taken = vec![false; self.nodes.len()];
        image[ROOT] = Some(ROOT);
        let place = |cpu: &CpuId| {
            let mut at = ROOT;
            for row in self.path_to(*cpu).into_iter().skip(1) {
                let children = &self.nodes[at].children;
                let fresh = || {
                    children
                        .iter()
                        .copied()
                        .find(|c| !taken[*c] && self.nodes[*c].shape == self.nodes[row].shape)
                };
                at = image[row].or_else(fresh).unwrap_or(row);
                image[row] = Some(at);
                taken[at] = true;
            }
            self.nodes[at].cpu.unwrap_or(*cpu)
        };
        assignment.iter().map(place).collect()
    }

    /// Returns the equivalent mapping that keeps the most threads on their current CPUs.
    pub fn nearest(&self, assignment: &[CpuId], present: &[CpuId]) -> Vec<CpuId> {
        let paths =
            |cpus: &[CpuId]| -> Vec<Vec<usize>> { cpus.iter().map(|c| self.path_to(*c)).collect() };
        let wanted = paths(assignment);
        let here = paths(present);
        let mut chosen = assignment.to_vec();
        let everyone: Vec<usize> = (0..assignment.len()).collect();
        self.pair(1, ROOT, &everyone, &wanted, &here, &mut chosen);
        chosen
    }

    /// Matches the children that `threads` use at this depth with the children of `to`, so that most threads stay. Writes the
    /// resulting CPUs to `chosen`.
    fn pair(
        &self,
        depth: usize,
        to: usize,
        threads: &[usize],
        wanted: &[Vec<usize>],
        here: &[Vec<usize>],
        chosen: &mut [CpuId],
    ) {
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &t in threads {
            match wanted[t].get(depth) {
                Some(child) => members.entry(*child).or_default().push(t),
                None => chosen[t] = self.nodes[to].cpu.unwrap_or(chosen[t]),
            }
        }
        let targets = &self.nodes[to].children;
        let members: Vec<(usize, Vec<usize>)> = members.into_iter().collect();
        let onto = matched(members.len(), targets.len(), |row, target| {
            let ((from, threads), onto) = (&members[row], targets[target]);
            let stays = |t: &&usize| here[**t].get(depth) == Some(&onto);
            (self.nodes[onto].shape == self.nodes[*from].shape)
                .then(|| threads.iter().filter(stays).count())
        });
        for ((_, threads), target) in members.iter().zip(onto) {
            if let Some(target) = target {
                self.pair(depth + 1, targets[target], threads, wanted, here, chosen);
            }
        }
    }
}

impl DomainNode {
    const fn under(parent: usize) -> Self {
        Self {
            parent,
            shape: 0,
            children: Vec::new(),
            leaves: 1,
            cpu: None,
        }
    }
}

impl DomainFill {
    pub fn new(tree: &DomainTree, least: u32, most: u32) -> Self {
        let mut fill = Self {
            used: vec![0; tree.nodes.len()],
            most,
            least,
            wanting: least * tree.leaf.len() as u32,
            free_cores: vec![0; tree.nodes.len()],
            crowded_cores: vec![0; tree.nodes.len()],
            owed: 0,
        };
        for leaf in &tree.leaf {
            let core = tree.nodes[*leaf].parent;
            if tree.nodes[core].children.first() == Some(leaf) {
                fill.free_cores[tree.nodes[core].parent] += 1;
            }
        }
        fill
    }

    /// Returns the number of threads on a CPU.
    pub fn load(&self, tree: &DomainTree, cpu: CpuId) -> u32 {
        self.used[tree.leaf[cpu.index()]]
    }

    /// Returns the minimum number of further threads that a balanced mapping needs. In a balanced mapping, no CPU holds two
    /// threads more than another. No core holds two while an equal core under the same caches is empty.
    pub fn needed(&self) -> u32 {
        self.wanting.max(self.owed)
    }

    pub fn add(&mut self, tree: &DomainTree, cpu: CpuId) {
        self.wanting -= u32::from(self.load(tree, cpu) < self.least);
        self.count(tree, cpu, |n| n + 1);
    }

    pub fn remove(&mut self, tree: &DomainTree, cpu: CpuId) {
        self.count(tree, cpu, |n| n - 1);
        self.wanting += u32::from(self.load(tree, cpu) < self.least);
    }

    fn count(&mut self, tree: &DomainTree, cpu: CpuId, step: fn(u32) -> u32) {
        let leaf = tree.leaf[cpu.index()];
        let core = tree.nodes[leaf].parent;
        let domain = tree.nodes[core].parent;
        self.owed -= self.owes(domain);
        let before = self.used[core];
        let mut row = leaf;
        loop {
            self.used[row] = step(self.used[row]);
            if row == ROOT {
                break;
            }
            row = tree.nodes[row].parent;
        }
        let after = self.used[core];
        self.free_cores[domain] =
            self.free_cores[domain] + u32::from(after == 0) - u32::from(before == 0);
        self.crowded_cores[domain] =
            self.crowded_cores[domain] + u32::from(after > 1) - u32::from(before > 1);
        self.owed += self.owes(domain);
    }

    fn owes(&self, domain: usize) -> u32 {
        if self.crowded_cores[domain] > 0 {
            self.free_cores[domain]
        } else {
            0
        }
    }
}

/// Returns the domains of a CPU from the outermost to the innermost. Each has a kind, a number, and the properties that
/// distinguish it from others of its kind.
fn path(topology: &Topology, cpu: usize, special: &[&CpuSet]) -> Vec<(u8, u32, String)> {
    let cpu = &topology.cpus[cpu];
    let mut outer: Vec<(usize, u8, u32, String)> = Vec::new();
    let memory = &topology.memory[cpu.memory as usize];
    outer.push((
        memory.cpus.len(),
        0,
        cpu.memory,
        format!("{} {}", memory.latency_ns, memory.bandwidth_gb_s),
    ));
    let on_socket = topology
        .cpus
        .iter()
        .filter(|c| c.socket == cpu.socket)
        .count();
    outer.push((on_socket, 1, cpu.socket, String::new()));
    for id in &cpu.caches {
        let cache = &topology.caches[id.index()];
        let traits = format!(
            "{} {} {} {}",
            cache.level, cache.lines, cache.ways, cache.latency_ns
        );
        outer.push((cache.cpus.len(), 2, id.0, traits));
    }
    // Domains with more CPUs contain those with fewer. The order of domains with equally many CPUs does not matter.
    outer.sort_by_key(|(width, kind, number, _)| (std::cmp::Reverse(*width), *kind, *number));
    let mut path: Vec<_> = outer
        .into_iter()
        .map(|(_, kind, number, traits)| (kind, number, traits))
        .collect();
    path.push((3, cpu.core_type.0, cpu.core_type.to_string()));
    path.push((4, cpu.core, String::new()));
    let who: String = special
        .iter()
        .map(|set| if set.contains(cpu.id) { '1' } else { '0' })
        .collect();
    path.push((5, cpu.id.0, who));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing;

    fn all(
        tree: &DomainTree,
        fill: &mut DomainFill,
        left: u32,
        so_far: &mut Vec<CpuId>,
        found: &mut Vec<Vec<CpuId>>,
    ) {
        if left == 0 {
            found.push(so_far.clone());
            return;
        }
        for cpu in tree.candidates(fill) {
            fill.add(tree, cpu);
            so_far.push(cpu);
            if fill.needed() < left {
                all(tree, fill, left - 1, so_far, found);
            }
            so_far.pop();
            fill.remove(tree, cpu);
        }
    }

    fn mappings(
        machine: &str,
        threads: u32,
        least: u32,
        most: u32,
    ) -> (DomainTree, Vec<Vec<CpuId>>) {
        let tree = DomainTree::new(&testing::topology(machine), &[]);
        let mut fill = DomainFill::new(&tree, least, most);
        let mut found = Vec::new();
        all(&tree, &mut fill, threads, &mut Vec::new(), &mut found);
        (tree, found)
    }

    #[test]
    fn each_mapping_is_met_once_up_to_swaps_of_equivalent_domains() {
        // Eight threads on four cores under two caches: 8! / (2!^4 pairs * 2!^2 cores * 2! caches).
        let (tree, found) = mappings(testing::TWO_LLCS, 8, 2, 2);
        assert_eq!(found.len(), 315);
        let canonical: std::collections::BTreeSet<_> =
            found.iter().map(|m| tree.canonical(m)).collect();
        assert_eq!(canonical.len(), 315);
        assert!(found.iter().all(|m| tree.canonical(m) == *m));
    }

    #[test]
    fn a_core_is_shared_only_when_no_equal_one_is_free() {
        // Two big cores of two threads each and two small cores: two threads never share a big core while one is free.
        let (_, two) = mappings(testing::SMT, 2, 0, 1);
        let cpus: Vec<Vec<u32>> = two
            .iter()
            .map(|m| m.iter().map(|c| c.0).collect())
            .collect();
        assert_eq!(cpus, [vec![0, 2], vec![0, 4], vec![4, 0], vec![4, 5]]);
    }

    #[test]
    fn the_nearest_equivalent_mapping_moves_nobody_without_need() {
        let (tree, found) = mappings(testing::TWO_LLCS, 4, 1, 1);
        let present = [3, 2, 1, 0].map(CpuId);
        let mapping = found.iter().find(|m| m[0].0 / 2 == m[1].0 / 2).unwrap();
        assert_eq!(tree.nearest(mapping, &present), present);
    }
}
