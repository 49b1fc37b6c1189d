//! Microarchitectures: parameters that are in no file of the kernel.
//!
//! Input: a name, or the model number of a processor. Output: a row of `uarch.toml`; that file gives the origin of its values. A
//! machine with such values says so.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::platform::{ArmPart, HybridPmu};

/// Core whose parameters are known.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Uarch {
    pub(super) name: String,
    /// Instructions dispatched per cycle.
    pub(super) width: u32,
    /// Reorder window in instructions; for an in-order core, the number of instructions that overlap.
    pub(super) window: u32,
    #[serde(default)]
    pub(super) in_order: bool,
    /// Cycles lost to a branch misprediction.
    pub(super) penalty: u32,
    pub(super) l1_cycles: u32,
    pub(super) l2_cycles: u32,
    /// Latency of the next cache level, if there is one, in ns.
    pub(super) l3_ns: f64,
    pub(super) counters: u32,
    /// Name of the class of core that has its power.
    #[serde(rename = "power")]
    class: String,
    #[serde(skip)]
    pub(super) power: ClassPower,
    /// Models of family 6 that have these cores only.
    #[serde(default)]
    intel: Vec<u32>,
    /// Family, first and last model.
    #[serde(default)]
    amd: Vec<[u32; 3]>,
    /// Implementer above the 12 bits of the part number.
    #[serde(default)]
    arm: Vec<u32>,
    /// Cache sizes in KiB by level (level 1: data cache), if the core is built in only one size.
    #[serde(default)]
    kib: Vec<u32>,
}

/// Power of a class of core at its usual clock.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassPower {
    pub(super) idle_w: f64,
    pub(super) active_w: f64,
    pub(super) instruction_nj: f64,
}

/// Intel processors with several types of core, in the order of [`HybridPmu`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hybrid {
    models: Vec<u32>,
    cores: [String; 3],
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    hybrids: Vec<Hybrid>,
    generic: Uarch,
    cores: Vec<Uarch>,
    power: BTreeMap<String, ClassPower>,
}

impl Registry {
    fn parse() -> Result<Self, toml::de::Error> {
        let mut registry: Self = toml::from_str(include_str!("uarch.toml"))?;
        for core in registry.cores.iter_mut().chain([&mut registry.generic]) {
            core.power = registry.power.get(&core.class).copied().unwrap_or_default();
        }
        Ok(registry)
    }

    fn hybrid(&self, model: u32) -> Option<&Hybrid> {
        self.hybrids.iter().find(|row| row.models.contains(&model))
    }
}

// A test parses the file, so an error is impossible in a build that passed the tests.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::parse().unwrap_or_default());

/// Returns the row for processors that the registry does not know.
pub(super) fn generic() -> &'static Uarch {
    &REGISTRY.generic
}

fn find(matches: impl Fn(&Uarch) -> bool) -> &'static Uarch {
    let row = REGISTRY.cores.iter().find(|row| matches(row));
    row.unwrap_or(generic())
}

/// Returns the row of that name, or else the generic one.
pub(super) fn named(name: &str) -> &'static Uarch {
    find(|row| row.name == name)
}

/// True for an Intel processor with several types of core.
pub(super) fn is_hybrid(family: u32, model: u32) -> bool {
    family == 6 && REGISTRY.hybrid(model).is_some()
}

/// Returns an Intel core; the big core of a hybrid if the kind is unknown.
pub(super) fn intel(family: u32, model: u32, kind: Option<HybridPmu>) -> &'static Uarch {
    let kind = kind.unwrap_or(HybridPmu::Core) as usize;
    match REGISTRY.hybrid(model) {
        _ if family != 6 => generic(),
        Some(hybrid) => named(&hybrid.cores[kind]),
        None => find(|row| row.intel.contains(&model)),
    }
}

/// Returns an AMD core. Compact cores carry the model number of the big cores beside them and are distinguished later, by clock.
pub(super) fn amd(family: u32, model: u32) -> &'static Uarch {
    let covers = |[of, first, last]: &[u32; 3]| *of == family && (*first..=*last).contains(&model);
    find(|row| row.amd.iter().any(covers))
}

/// Returns the Arm core of a part number.
pub(super) fn arm(part: Option<ArmPart>) -> &'static Uarch {
    let is = |code: &u32| part == Some(ArmPart::of_code(*code));
    find(|row| row.arm.iter().any(is))
}

impl Uarch {
    /// Returns the size of a cache in KiB; `None` if designs differ or the core is unknown.
    pub(super) fn cache_kib(&self, level: usize) -> Option<u32> {
        self.kib.get(level.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_sound_and_no_two_have_a_name_or_a_model_number_in_common() {
        let registry = Registry::parse().unwrap();
        let mut known = BTreeSet::new();
        let mut add = |key: String| assert!(known.insert(key.clone()), "{key} is there twice");
        for row in registry.cores.iter().chain([&registry.generic]) {
            add(row.name.clone());
            row.intel
                .iter()
                .for_each(|model| add(format!("intel {model:#x}")));
            row.arm
                .iter()
                .for_each(|code| add(format!("arm {code:#x}")));
            for [family, first, last] in &row.amd {
                assert!(first <= last && *last <= 0xff, "{}", row.name);
                (*first..=*last).for_each(|model| add(format!("amd {family:#x} {model:#x}")));
            }
            let cycles = [
                row.width,
                row.window,
                row.penalty,
                row.l1_cycles,
                row.counters,
            ];
            assert!(cycles.iter().all(|value| *value > 0), "{}", row.name);
            assert!(
                row.l2_cycles > row.l1_cycles && row.l3_ns > 0.0,
                "{}",
                row.name
            );
            assert!(registry.power.contains_key(&row.class), "{}", row.class);
        }
        for hybrid in &registry.hybrids {
            hybrid
                .models
                .iter()
                .for_each(|model| add(format!("intel {model:#x}")));
            for core in &hybrid.cores {
                assert!(registry.cores.iter().any(|row| row.name == *core), "{core}");
            }
        }
        for power in registry.power.values() {
            assert!(power.active_w > power.idle_w && power.instruction_nj > 0.0);
        }
    }
}
