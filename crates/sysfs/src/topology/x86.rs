//! x86 microarchitectures by family and model.
//!
//! Input: vendor, family, model, and on hybrids the kind of core. Output: a row of the table.

use super::cpus::{CpuFacts, HybridPmu};
use super::uarch::{GENERIC, Uarch, named};

/// Hybrids by model: core, atom, and low-power island if it differs from the atoms.
const HYBRIDS: &[(&[u32], [&str; 3])] = &[
    (&[0x8a], ["sunny-cove", "tremont", "tremont"]),
    (&[0x97, 0x9a], ["golden-cove", "gracemont", "gracemont"]),
    (
        &[0xb7, 0xba, 0xbf],
        ["raptor-cove", "gracemont", "gracemont"],
    ),
    (
        &[0xaa, 0xac, 0xb5],
        ["redwood-cove", "crestmont", "crestmont"],
    ),
    (&[0xc5, 0xc6], ["lion-cove", "skymont", "crestmont"]),
    (&[0xbd], ["lion-cove", "skymont", "skymont"]),
    (&[0xcc], ["cougar-cove", "darkmont", "darkmont"]),
];

const UNIFORM: &[(&[u32], &str)] = &[
    (&[0x0f, 0x16], "conroe"),
    (&[0x17, 0x1d], "penryn"),
    (&[0x1a, 0x1e, 0x1f, 0x2e], "nehalem"),
    (&[0x25, 0x2c, 0x2f], "westmere"),
    (&[0x2a, 0x2d], "sandy-bridge"),
    (&[0x3a, 0x3e], "ivy-bridge"),
    (&[0x3c, 0x3f, 0x45, 0x46], "haswell"),
    (&[0x3d, 0x47, 0x4f, 0x56], "broadwell"),
    (&[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6], "skylake"),
    (&[0x55], "skylake-server"),
    (&[0x6a, 0x6c, 0x7d, 0x7e, 0xa7], "sunny-cove"),
    (&[0x8c, 0x8d], "willow-cove"),
    (&[0x8f], "golden-cove-server"),
    (&[0xcf], "raptor-cove-server"),
    (&[0xad, 0xae], "redwood-cove-server"),
    (&[0x1c, 0x26, 0x27, 0x35, 0x36], "bonnell"),
    (&[0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d], "silvermont"),
    (&[0x5c, 0x5f, 0x7a], "goldmont"),
    (&[0x86, 0x96, 0x9c], "tremont"),
    (&[0xbe], "gracemont"),
    (&[0xaf, 0xb6], "crestmont-server"),
];

/// Threshold of the L1 data cache size between big and small cores. All big cores of hybrids so far have 48 KiB and all small
/// ones 32. It serves virtual machines, containers and old kernels, which have no hybrid PMUs.
const BIG_CORE_L1D_KIB: u32 = 40;

/// Returns the kind of an Intel hybrid's core; `None` for other processors.
pub(super) fn hybrid_kind(family: u32, model: u32, cpu: &CpuFacts) -> Option<HybridPmu> {
    if cpu.pmu.is_some() {
        return cpu.pmu;
    }
    let is_hybrid = family == 6 && HYBRIDS.iter().any(|(models, _)| models.contains(&model));
    let l1d = cpu.l1d.as_ref().filter(|_| is_hybrid)?;
    Some(if l1d.known_kib()? >= BIG_CORE_L1D_KIB {
        HybridPmu::Core
    } else {
        HybridPmu::Atom
    })
}

/// Returns an Intel core; the big core of a hybrid if the kind is unknown.
pub(super) fn intel(family: u32, model: u32, kind: Option<HybridPmu>) -> &'static Uarch {
    if family != 6 {
        return &GENERIC;
    }
    let kind = kind.unwrap_or(HybridPmu::Core) as usize;
    let hybrid = HYBRIDS
        .iter()
        .find(|(models, _)| models.contains(&model))
        .map(|(_, names)| names[kind]);
    let uniform = || {
        UNIFORM
            .iter()
            .find(|(models, _)| models.contains(&model))
            .map(|(_, name)| *name)
    };
    hybrid.or_else(uniform).map_or(&GENERIC, named)
}

/// Returns an AMD core. Compact cores carry the model number of the big cores beside them and are distinguished later, by clock.
pub(super) fn amd(family: u32, model: u32) -> &'static Uarch {
    named(match (family, model) {
        (0x10..=0x12, _) => "k10",
        (0x15, _) => "bulldozer",
        (0x17 | 0x18, 0x00..=0x2f) => "zen",
        (0x17, _) => "zen2",
        (0x19, 0x10..=0x1f | 0x60..=0x7f) => "zen4",
        (0x19, 0xa0..=0xaf) => "zen4c",
        (0x19, _) => "zen3",
        (0x1a, 0x10..=0x1f) => "zen5c",
        (0x1a, _) => "zen5",
        _ => return &GENERIC,
    })
}
