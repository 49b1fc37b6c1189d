//! Pipelines of core types: the limits of a core between its misses.
//!
//! Input: the name of a pipeline in a machine file. Output: a [`CorePipeline`] from `pipelines.toml`, which names its sources.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::profile::Operation;

/// Kind of work that an instruction needs from a pipeline: an operation, a load, a store, a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Compute(Operation),
    Load,
    Store,
    Branch,
}

impl Unit {
    /// All units, in the order of the bits of a [`UnitSet`].
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

/// Set of units, one bit for each of [`Unit::ALL`].
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

    /// Returns the work on these units, given that of each of [`Unit::ALL`].
    #[must_use]
    pub fn sum(self, work: &[f64; Unit::ALL.len()]) -> f64 {
        let rows = (0..work.len()).filter(|row| self.contains(*row));
        rows.map(|row| work[row]).sum()
    }
}

impl<'de> Deserialize<'de> for UnitSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut set = Self::default();
        for name in text.split_whitespace() {
            let row = Unit::NAMES.iter().position(|known| *known == name);
            let row = row.ok_or_else(|| serde::de::Error::custom(format!("no unit `{name}`")))?;
            set.0 |= 1 << row;
        }
        Ok(set)
    }
}

/// Scheduler queue.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Number of operations that can wait in it.
    pub entries: f64,
    pub holds: UnitSet,
    /// Number of separate queues that these form, each in front of its own units.
    #[serde(default = "one")]
    pub parts: u32,
}

const fn one() -> u32 {
    1
}

/// Latencies in cycles; those not listed are one cycle.
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
    /// Returns the cycles of an operation.
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

/// Largest number of port sets that matter for the port bound.
pub const MAX_PORT_SETS: usize = 14;

/// Ports, one bit each.
type PortSet = u32;

/// Limits of a core between its misses, and its number of outstanding misses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePipeline {
    pub name: String,
    /// Units that each execution port accepts.
    pub ports: Vec<UnitSet>,
    /// Scheduler queues; empty for an in-order core.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// Integer registers for instructions in flight, if they may end the window before the reorder buffer does.
    #[serde(default)]
    pub registers: Option<f64>,
    /// Entries of the reorder buffer.
    #[serde(default)]
    pub retained: Option<f64>,
    /// Cycles from a load that hits the first level to a dependent operation.
    pub load_cycles: f64,
    pub latency: Latencies,
    /// True if a compare and the branch after it are fused.
    #[serde(default)]
    pub fused_branches: bool,
    pub taken_per_cycle: f64,
    /// Outstanding lines of the first level.
    pub miss_buffers: f64,
    /// Outstanding lines of prefetchers and misses together beyond the second level.
    pub prefetch_lines: f64,
    /// Work that only some ports can do, and the number of these ports, for every set of ports that matters.
    #[serde(skip)]
    forms: Vec<(UnitSet, f64)>,
}

impl CorePipeline {
    /// Returns the pipeline of a name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        all().iter().find(|p| p.name == name)
    }

    /// Returns the cycles per instruction that the ports need for `work` per instruction on each of [`Unit::ALL`].
    ///
    /// Exact for the best assignment of work to ports (Hall's condition): for every set of ports, the work that can go nowhere
    /// else shares them (Abel, Sharma and Reineke, Facile, IISWC 2023).
    #[must_use]
    pub fn port_cycles(&self, work: &[f64; Unit::ALL.len()]) -> f64 {
        self.port_uses(work).fold(0.0, f64::max)
    }

    /// Returns the cycles per instruction of each set of ports that matters, at most [`MAX_PORT_SETS`] of them. The maximum is
    /// the port bound. Threads that share the ports add up set by set.
    pub fn port_uses(&self, work: &[f64; Unit::ALL.len()]) -> impl Iterator<Item = f64> {
        let forms = self.forms.iter();
        forms.map(|(units, ports)| units.sum(work) / ports)
    }

    /// Returns the linear forms of the port bound.
    fn port_forms(&self) -> Vec<(UnitSet, f64)> {
        let mut forms: Vec<(UnitSet, PortSet)> = Vec::new();
        for bits in 1..1u16 << Unit::ALL.len() {
            let asked = UnitSet(bits);
            let ports = self.ports_of(asked);
            match forms.iter_mut().find(|(_, known)| *known == ports) {
                // The last one added has all units that fit: subsets come before their supersets.
                Some((units, _)) => units.0 |= asked.0,
                None => forms.push((asked, ports)),
            }
        }
        // Two disjoint sets bind before their union does.
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

    /// Returns the ports that accept one of `units`, one bit each.
    fn ports_of(&self, units: UnitSet) -> PortSet {
        let meets = |(row, port): (usize, &UnitSet)| PortSet::from(port.meets(units)) << row;
        self.ports.iter().enumerate().map(meets).sum()
    }

    /// Returns the names of all pipelines, in the order of the file.
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
    // A test reads the file, so an empty list is impossible in a build that passed.
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

    fn work(of: &[(&str, f64)]) -> [f64; Unit::ALL.len()] {
        let mut work = [0.0; Unit::ALL.len()];
        for (name, value) in of {
            work[Unit::NAMES.iter().position(|n| n == name).unwrap()] = *value;
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
        let exhaustive = |pipeline: &CorePipeline, work: &[f64; Unit::ALL.len()]| {
            (1..1u16 << Unit::ALL.len())
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
                let work: [f64; Unit::ALL.len()] = std::array::from_fn(share);
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
            for (row, unit) in Unit::ALL.iter().enumerate() {
                let ports = pipeline.ports.iter().filter(|p| p.contains(row)).count();
                assert!(ports > 0, "{}: no port for {unit:?}", pipeline.name);
                let queues = pipeline.queues.iter().filter(|q| q.holds.contains(row));
                let expected = usize::from(!pipeline.queues.is_empty());
                assert_eq!(queues.count(), expected, "{}: {unit:?}", pipeline.name);
            }
        }
    }
}
