//! Parameters of microarchitectures that are in no file of the kernel.
//!
//! Input: a name. Output: widths, windows and latencies as vendors published or reviewers measured them (both rounded), and
//! power values estimated by class of core. A machine with such values says so.

#[derive(Debug, PartialEq)]
pub(super) struct Uarch {
    pub(super) name: &'static str,
    /// Instructions dispatched per cycle.
    pub(super) width: u32,
    /// Reorder window in instructions; for an in-order core, the number of instructions that overlap.
    pub(super) window: u32,
    pub(super) in_order: bool,
    /// Cycles lost to a branch misprediction.
    pub(super) penalty: u32,
    pub(super) l1_cycles: u32,
    pub(super) l2_cycles: u32,
    /// Latency of the next cache level, if there is one, in ns.
    pub(super) l3_ns: f64,
    pub(super) counters: u32,
    pub(super) power: &'static Power,
}

/// Power of a class of core at its usual clock; the values are estimates.
#[derive(Debug, PartialEq)]
pub(super) struct Power {
    pub(super) idle_w: f64,
    pub(super) active_w: f64,
    pub(super) instruction_nj: f64,
}

const OLD: Power = Power {
    idle_w: 3.0,
    active_w: 7.0,
    instruction_nj: 1.8,
};
const DESKTOP: Power = Power {
    idle_w: 0.1,
    active_w: 4.0,
    instruction_nj: 0.9,
};
const SERVER: Power = Power {
    idle_w: 0.1,
    active_w: 1.5,
    instruction_nj: 0.4,
};
const EFFICIENT: Power = Power {
    idle_w: 0.05,
    active_w: 1.2,
    instruction_nj: 0.45,
};
const MOBILE: Power = Power {
    idle_w: 0.02,
    active_w: 0.6,
    instruction_nj: 0.25,
};
const MIDDLE: Power = Power {
    idle_w: 0.01,
    active_w: 0.25,
    instruction_nj: 0.15,
};
const LITTLE: Power = Power {
    idle_w: 0.005,
    active_w: 0.05,
    instruction_nj: 0.08,
};

/// Out-of-order core: name, width, window, penalty, L1 and L2 cycles, L3 nanoseconds, counters, power.
const fn big(
    name: &'static str,
    [width, window, penalty]: [u32; 3],
    [l1_cycles, l2_cycles]: [u32; 2],
    l3_ns: f64,
    counters: u32,
    power: &'static Power,
) -> Uarch {
    Uarch {
        name,
        width,
        window,
        in_order: false,
        penalty,
        l1_cycles,
        l2_cycles,
        l3_ns,
        counters,
        power,
    }
}

/// In-order core; the window of 16 represents the overlap of the load queue.
const fn in_order(
    name: &'static str,
    [width, penalty]: [u32; 2],
    [l1_cycles, l2_cycles]: [u32; 2],
    l3_ns: f64,
    counters: u32,
    power: &'static Power,
) -> Uarch {
    Uarch {
        name,
        width,
        window: 16,
        in_order: true,
        penalty,
        l1_cycles,
        l2_cycles,
        l3_ns,
        counters,
        power,
    }
}

/// Row for processors that the table does not know.
pub(super) static GENERIC: Uarch = big("generic", [4, 192, 15], [4, 14], 18.0, 4, &DESKTOP);

static TABLE: &[Uarch] = &[
    // Intel, big
    big("conroe", [4, 96, 15], [3, 14], 20.0, 2, &OLD),
    big("penryn", [4, 96, 15], [3, 15], 20.0, 2, &OLD),
    big("nehalem", [4, 128, 17], [4, 10], 14.0, 4, &OLD),
    big("westmere", [4, 128, 17], [4, 10], 15.0, 4, &OLD),
    big("sandy-bridge", [4, 168, 16], [4, 12], 10.0, 4, &DESKTOP),
    big("ivy-bridge", [4, 168, 16], [4, 12], 10.0, 4, &DESKTOP),
    big("haswell", [4, 192, 16], [4, 12], 12.0, 4, &DESKTOP),
    big("broadwell", [4, 192, 16], [4, 12], 14.0, 4, &DESKTOP),
    big("skylake", [4, 224, 16], [4, 12], 12.0, 4, &DESKTOP),
    big("skylake-server", [4, 224, 16], [4, 14], 20.0, 4, &SERVER),
    big("sunny-cove", [5, 352, 17], [5, 13], 14.0, 8, &DESKTOP),
    big("willow-cove", [5, 352, 17], [5, 14], 14.0, 8, &DESKTOP),
    big("golden-cove", [6, 512, 17], [5, 15], 16.0, 8, &DESKTOP),
    big(
        "golden-cove-server",
        [6, 512, 17],
        [5, 15],
        33.0,
        8,
        &SERVER,
    ),
    big("raptor-cove", [6, 512, 17], [5, 16], 15.0, 8, &DESKTOP),
    big(
        "raptor-cove-server",
        [6, 512, 17],
        [5, 16],
        33.0,
        8,
        &SERVER,
    ),
    big("redwood-cove", [6, 512, 17], [5, 16], 17.0, 8, &DESKTOP),
    big(
        "redwood-cove-server",
        [6, 512, 17],
        [5, 16],
        35.0,
        8,
        &SERVER,
    ),
    big("lion-cove", [8, 576, 18], [4, 17], 15.0, 10, &DESKTOP),
    big("cougar-cove", [8, 576, 18], [4, 17], 15.0, 10, &DESKTOP),
    // Intel, small
    in_order("bonnell", [2, 13], [3, 16], 20.0, 2, &EFFICIENT),
    big("silvermont", [2, 32, 10], [3, 13], 20.0, 2, &EFFICIENT),
    big("goldmont", [3, 78, 13], [3, 17], 20.0, 4, &EFFICIENT),
    big("tremont", [4, 208, 13], [3, 17], 18.0, 4, &EFFICIENT),
    big("gracemont", [5, 256, 13], [3, 20], 18.0, 6, &EFFICIENT),
    big("crestmont", [6, 256, 13], [3, 20], 20.0, 8, &EFFICIENT),
    big(
        "crestmont-server",
        [6, 256, 13],
        [3, 17],
        35.0,
        8,
        &EFFICIENT,
    ),
    big("skymont", [8, 416, 13], [4, 19], 20.0, 8, &EFFICIENT),
    big("darkmont", [8, 416, 13], [4, 19], 20.0, 8, &EFFICIENT),
    // AMD
    big("k10", [3, 72, 12], [3, 15], 20.0, 4, &OLD),
    big("bulldozer", [4, 128, 20], [4, 20], 22.0, 6, &OLD),
    big("zen", [6, 192, 16], [4, 12], 10.0, 6, &DESKTOP),
    big("zen2", [6, 224, 16], [4, 12], 10.0, 6, &DESKTOP),
    big("zen3", [6, 256, 13], [4, 12], 11.0, 6, &DESKTOP),
    big("zen4", [6, 320, 13], [4, 14], 10.5, 6, &DESKTOP),
    big("zen4c", [6, 320, 13], [4, 14], 16.0, 6, &EFFICIENT),
    big("zen5", [8, 448, 13], [4, 14], 10.0, 6, &DESKTOP),
    big("zen5c", [8, 448, 13], [4, 14], 15.0, 6, &EFFICIENT),
    // Arm
    in_order("cortex-a35", [1, 8], [3, 14], 20.0, 6, &LITTLE),
    in_order("cortex-a53", [2, 8], [3, 15], 20.0, 6, &LITTLE),
    in_order("cortex-a55", [2, 8], [3, 9], 20.0, 6, &LITTLE),
    in_order("cortex-a510", [3, 9], [3, 9], 20.0, 6, &LITTLE),
    in_order("cortex-a520", [3, 9], [3, 9], 20.0, 6, &LITTLE),
    big("cortex-a57", [3, 128, 16], [4, 21], 20.0, 6, &MIDDLE),
    big("cortex-a72", [3, 128, 15], [4, 18], 20.0, 6, &MIDDLE),
    big("cortex-a73", [2, 64, 12], [3, 18], 20.0, 6, &MIDDLE),
    big("cortex-a75", [3, 128, 12], [4, 9], 18.0, 6, &MIDDLE),
    big("cortex-a76", [4, 128, 11], [4, 9], 16.0, 6, &MIDDLE),
    big("cortex-a77", [6, 160, 11], [4, 9], 16.0, 6, &MOBILE),
    big("cortex-a78", [6, 160, 11], [4, 9], 16.0, 6, &MIDDLE),
    big("cortex-a710", [5, 160, 11], [4, 9], 16.0, 6, &MIDDLE),
    big("cortex-a715", [5, 192, 11], [4, 9], 16.0, 6, &MIDDLE),
    big("cortex-a720", [5, 192, 11], [4, 9], 16.0, 6, &MIDDLE),
    big("cortex-a725", [5, 224, 11], [4, 9], 16.0, 6, &MIDDLE),
    big("cortex-x1", [8, 224, 11], [4, 10], 15.0, 6, &MOBILE),
    big("cortex-x2", [8, 288, 11], [4, 10], 15.0, 6, &MOBILE),
    big("cortex-x3", [6, 320, 12], [4, 10], 15.0, 6, &MOBILE),
    big("cortex-x4", [10, 384, 12], [4, 12], 15.0, 6, &MOBILE),
    big("cortex-x925", [10, 750, 12], [4, 13], 15.0, 6, &MOBILE),
    big("neoverse-n1", [4, 128, 11], [4, 11], 30.0, 6, &SERVER),
    big("neoverse-n2", [5, 160, 11], [4, 13], 32.0, 6, &SERVER),
    big("neoverse-v1", [8, 256, 11], [4, 13], 32.0, 6, &SERVER),
    big("neoverse-v2", [8, 320, 11], [4, 13], 35.0, 6, &SERVER),
    big("oryon", [8, 650, 13], [3, 17], 30.0, 6, &MOBILE),
    // Apple
    big("icestorm", [4, 110, 11], [3, 15], 30.0, 8, &LITTLE),
    big("firestorm", [8, 630, 13], [3, 18], 30.0, 8, &MOBILE),
    big("blizzard", [5, 110, 11], [3, 15], 30.0, 8, &LITTLE),
    big("avalanche", [8, 630, 13], [3, 18], 30.0, 8, &MOBILE),
];

/// Returns the row of that name, or else the generic one.
pub(super) fn named(name: &str) -> &'static Uarch {
    TABLE.iter().find(|u| u.name == name).unwrap_or(&GENERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own() {
        for (i, row) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..i].iter().all(|other| other.name != row.name),
                "{} is there twice",
                row.name
            );
        }
    }
}
