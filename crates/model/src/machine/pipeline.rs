//! Pipelines of core types: the limits of a core's throughput between cache misses.
//!
//! Input: the name of a pipeline in a machine file. Output: a [`CorePipeline`] from `pipelines.toml`; that file names its
//! sources.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::profile::Operation;

/// Kind of work that an instruction demands of a pipeline: an operation, a load, a store or a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    Compute(Operation),
    Load,
    Store,
    Branch,
}

impl WorkUnit {
    /// All kinds of work, in the order of the bits of a [`UnitSet`].
    pub const ALL: [Self; 11] = [
        Self::Compute(Operation::Alu),
        Self::Compute(Operation::Shift),
        Self::Compute(Operation::Multiply),
        Self::Compute(Operation::Divide),
        Self::Compute(Operation::FpAdd),
        Self::Compute(Operation::FpMultiply),
        Self::Compute(Operation::FpDivide),
        Self::Compute(Operation::Simd),
        Self::Load,
        Self::Store,
        Self::Branch,
    ];

    const NAMES: [&'static str; 11] = [
        "alu",
        "shift",
        "multiply",
        "divide",
        "fp-add",
        "fp-multiply",
        "fp-divide",
        "simd",
        "load",
        "store",
        "branch",
    ];
}

/// Set of kinds of work, one bit for each of [`WorkUnit::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitSet(u16);

impl UnitSet {
    #[must_use]
    pub const fn contains(self, row: usize) -> bool {
        self.0 >> row & 1 != 0
    }

    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the sum of `work` over the kinds in this set; `work` holds one value for each of [`WorkUnit::ALL`].
    #[must_use]
    pub fn sum(self, work: &[f64; WorkUnit::ALL.len()]) -> f64 {
        let rows = (0..work.len()).filter(|row| self.contains(*row));
        rows.map(|row| work[row]).sum()
    }
}

impl<'de> Deserialize<'de> for UnitSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut set = Self::default();
        for name in text.split_whitespace() {
            let row = WorkUnit::NAMES.iter().position(|known| *known == name);
            let row = row.ok_or_else(|| serde::de::Error::custom(format!("no unit `{name}`")))?;
            set.0 |= 1 << row;
        }
        Ok(set)
    }
}

/// Latencies of operations in cycles. Operations not listed take one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    pub multiply: f64,
    pub divide: f64,
    pub fp_add: f64,
    pub fp_multiply: f64,
    pub fp_divide: f64,
    pub simd: f64,
}

impl Latencies {
    /// Returns the latency of an operation in cycles.
    #[must_use]
    pub const fn of(&self, operation: Operation) -> f64 {
        match operation {
            Operation::Alu | Operation::Shift => 1.0,
            Operation::Multiply => self.multiply,
            Operation::Divide => self.divide,
            Operation::FpAdd => self.fp_add,
            Operation::FpMultiply => self.fp_multiply,
            Operation::FpDivide => self.fp_divide,
            Operation::Simd => self.simd,
        }
    }
}

const fn whole() -> f64 {
    1.0
}

/// Instruction cache and translation buffers of a core.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffers {
    /// Size of the first-level instruction cache; `None` if its misses cost nothing that was measured.
    #[serde(default)]
    pub code_kib: Option<f64>,
    /// Entries of the first-level translation buffer for code; `None` if its misses cost nothing that was measured.
    #[serde(default)]
    pub code_entries: Option<f64>,
    /// Entries of the first-level translation buffer for loads.
    pub data_entries: f64,
    /// Entries of the second-level translation buffer.
    pub second_entries: f64,
    /// Cycles by which a translation in the second level delays an access.
    pub second_cycles: f64,
    /// Cycles of a page walk whose entries are cached.
    pub walk_cycles: f64,
    /// Size of a page; 4 KiB on most machines.
    #[serde(default = "usual_page_kib")]
    pub page_kib: f64,
}

const fn usual_page_kib() -> f64 {
    4.0
}

/// Limit on the number of port sets that the port bound considers.
pub const MAX_PORT_SETS: usize = 14;

/// Set of execution ports, one bit per port.
type PortSet = u32;

/// Limits of a core's throughput between cache misses, and its number of outstanding misses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePipeline {
    pub name: String,
    /// Kinds of work that each execution port accepts.
    pub ports: Vec<UnitSet>,
    /// Number of integer registers for instructions in flight; `None` if they never limit the window before the reorder buffer
    /// does.
    #[serde(default)]
    pub registers: Option<f64>,
    /// Fraction of the dispatch width that the core reaches in the long run.
    #[serde(default = "whole")]
    pub sustained: f64,
    /// Cycles by which a floating-point operation in a dependence chain waits beyond its latency, on average.
    #[serde(default)]
    pub fp_wait: f64,
    /// Latency in cycles from a load that hits the L1 to a dependent operation.
    pub load_cycles: f64,
    pub latency: Latencies,
    /// True if the core fuses a compare with the branch after it.
    #[serde(default)]
    pub fused_branches: bool,
    pub taken_per_cycle: f64,
    /// Number of outstanding cache lines of the L1 (miss buffers).
    pub miss_buffers: f64,
    /// Number of outstanding cache lines of prefetchers and misses together beyond the L2.
    pub prefetch_lines: f64,
    /// Instruction cache and translation buffers; `None` if misses of theirs cost nothing.
    #[serde(default)]
    pub buffers: Option<Buffers>,
    /// Pairs (kinds of work that no other ports accept, number of ports), one for each set of ports in the port bound.
    #[serde(skip)]
    forms: Vec<(UnitSet, f64)>,
}

impl CorePipeline {
    /// Returns the pipeline with a name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        all().iter().find(|p| p.name == name)
    }

    /// Returns the cycles per instruction that the execution ports need, given the `work` per instruction on each of
    /// [`WorkUnit::ALL`].
    ///
    /// The result is exact for the best assignment of work to ports (Hall's condition). For every set of ports, the work that
    /// no other port accepts is divided by the number of ports (Abel, Sharma and Reineke, Facile, IISWC 2023).
    #[must_use]
    pub fn port_cycles(&self, work: &[f64; WorkUnit::ALL.len()]) -> f64 {
        self.port_uses(work).fold(0.0, f64::max)
    }

    /// Returns the cycles per instruction of each set of ports in the port bound, at most [`MAX_PORT_SETS`] values. The port
    /// bound is their maximum. If threads share the ports, their values are added set by set.
    pub fn port_uses(&self, work: &[f64; WorkUnit::ALL.len()]) -> impl Iterator<Item = f64> {
        let forms = self.forms.iter();
        forms.map(|(units, ports)| units.sum(work) / ports)
    }

    /// Returns the sets of ports in the port bound, each with the kinds of work that only these ports accept.
    fn port_forms(&self) -> Vec<(UnitSet, f64)> {
        let mut forms: Vec<(UnitSet, PortSet)> = Vec::new();
        for bits in 1..1u16 << WorkUnit::ALL.len() {
            let asked = UnitSet(bits);
            let ports = self.ports_of(asked);
            match forms.iter_mut().find(|(_, known)| *known == ports) {
                // Subsets come before their supersets, so the last set added for these ports has all kinds of work that fit.
                Some((units, _)) => units.0 |= asked.0,
                None => forms.push((asked, ports)),
            }
        }
        // If a set is the union of two disjoint sets, one of the two always gives a larger or equal bound.
        let falls_apart = |(units, ports): &(UnitSet, PortSet)| {
            forms.iter().any(|(part, some)| {
                let rest = forms.iter().find(|(_, other)| *other == ports & !some);
                let whole =
                    |(other, _): &(UnitSet, PortSet)| units.is_within(UnitSet(part.0 | other.0));
                some & ports == *some && some != ports && rest.is_some_and(whole)
            })
        };
        let kept = forms.iter().filter(|form| !falls_apart(form));
        kept.map(|(units, ports)| (*units, f64::from(ports.count_ones())))
            .collect()
    }

    /// Returns the ports that accept at least one of `units`.
    fn ports_of(&self, units: UnitSet) -> PortSet {
        let meets = |(row, port): (usize, &UnitSet)| PortSet::from(port.meets(units)) << row;
        self.ports.iter().enumerate().map(meets).sum()
    }

    /// Returns the names of all pipelines, in the order of `pipelines.toml`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        all().iter().map(|p| p.name.as_str())
    }
}

fn all() -> &'static [CorePipeline] {
    #[derive(Deserialize)]
    struct File {
        pipeline: Vec<CorePipeline>,
    }
    static ALL: OnceLock<Vec<CorePipeline>> = OnceLock::new();
    // A test parses the file, so an error is impossible in a build that passed the tests.
    ALL.get_or_init(|| {
        let file: Result<File, _> = toml::from_str(include_str!("pipelines.toml"));
        let mut pipelines = file.map_or_else(|_| Vec::new(), |f| f.pipeline);
        for pipeline in &mut pipelines {
            pipeline.forms = pipeline.port_forms();
        }
        pipelines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(of: &[(&str, f64)]) -> [f64; WorkUnit::ALL.len()] {
        let mut work = [0.0; WorkUnit::ALL.len()];
        for (name, value) in of {
            work[WorkUnit::NAMES.iter().position(|n| n == name).unwrap()] = *value;
        }
        work
    }

    #[test]
    fn the_port_bound_shares_ports_between_what_can_use_them() {
        let cycles = |name: &str, of: &[(&str, f64)]| {
            CorePipeline::named(name).unwrap().port_cycles(&work(of))
        };
        let mix = [
            ("alu", 0.45),
            ("load", 0.25),
            ("store", 0.10),
            ("branch", 0.15),
            ("fp-add", 0.05),
        ];
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // ALU, branch and FP share five ports on Golden Cove; loads have three.
        assert!(close(cycles("golden-cove", &mix), 0.65 / 5.0));
        assert!(
            close(cycles("gracemont", &mix), 0.25 / 2.0),
            "two load ports"
        );
        assert!(close(
            cycles("golden-cove", &[("multiply", 0.3), ("alu", 0.1)]),
            0.3
        ));
        assert!(close(
            cycles("bonnell", &[("load", 0.4), ("branch", 0.2), ("alu", 0.4)]),
            0.5
        ));
    }

    #[test]
    fn sets_of_ports_that_fall_apart_are_left_out_without_loss() {
        // All sets of units are tried, by the definition of the bound.
        let exhaustive = |pipeline: &CorePipeline, work: &[f64; WorkUnit::ALL.len()]| {
            (1..1u16 << WorkUnit::ALL.len())
                .map(|bits| {
                    UnitSet(bits).sum(work)
                        / f64::from(pipeline.ports_of(UnitSet(bits)).count_ones())
                })
                .fold(0.0, f64::max)
        };
        for pipeline in all() {
            for seed in 1..20u32 {
                let share = |row: usize| {
                    f64::from(seed.wrapping_mul(2_654_435_761).rotate_left(3 * row as u32) % 997)
                        / 997.0
                };
                let work: [f64; WorkUnit::ALL.len()] = std::array::from_fn(share);
                let (kept, all) = (pipeline.port_cycles(&work), exhaustive(pipeline, &work));
                assert!(
                    (kept - all).abs() < 1e-12,
                    "{}: {kept} {all}",
                    pipeline.name
                );
            }
        }
    }

    #[test]
    fn every_pipeline_can_execute_everything() {
        assert!(CorePipeline::names().count() > 10);
        for pipeline in all() {
            let sets = pipeline.forms.len();
            assert!(
                (1..=MAX_PORT_SETS).contains(&sets),
                "{}: {sets}",
                pipeline.name
            );
            for (row, unit) in WorkUnit::ALL.iter().enumerate() {
                let ports = pipeline.ports.iter().filter(|p| p.contains(row)).count();
                assert!(ports > 0, "{}: no port for {unit:?}", pipeline.name);
            }
        }
    }
}
