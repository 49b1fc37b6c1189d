//! Arm cores by implementer and part number.
//!
//! Input: the fields of the MIDR register. Output: a row of the table of microarchitectures.

use super::platform::Part;
use super::uarch::{GENERIC, Uarch, named};

const ARM: u32 = 0x41;
const QUALCOMM: u32 = 0x51;
pub(super) const APPLE: u32 = 0x61;

/// Qualcomm's Kryo cores up to 4xx are Arm's designs with separate part numbers.
const PARTS: &[(u32, &[u32], &str)] = &[
    (ARM, &[0xd03], "cortex-a53"),
    (ARM, &[0xd04], "cortex-a35"),
    (ARM, &[0xd05], "cortex-a55"),
    (ARM, &[0xd07], "cortex-a57"),
    (ARM, &[0xd08], "cortex-a72"),
    (ARM, &[0xd09], "cortex-a73"),
    (ARM, &[0xd0a], "cortex-a75"),
    (ARM, &[0xd0b, 0xd0e], "cortex-a76"),
    (ARM, &[0xd0c], "neoverse-n1"),
    (ARM, &[0xd0d], "cortex-a77"),
    (ARM, &[0xd40], "neoverse-v1"),
    (ARM, &[0xd41, 0xd42, 0xd4b], "cortex-a78"),
    (ARM, &[0xd44, 0xd4c], "cortex-x1"),
    (ARM, &[0xd46], "cortex-a510"),
    (ARM, &[0xd47], "cortex-a710"),
    (ARM, &[0xd48], "cortex-x2"),
    (ARM, &[0xd49], "neoverse-n2"),
    (ARM, &[0xd4d], "cortex-a715"),
    (ARM, &[0xd4e], "cortex-x3"),
    (ARM, &[0xd4f], "neoverse-v2"),
    (ARM, &[0xd80], "cortex-a520"),
    (ARM, &[0xd81], "cortex-a720"),
    (ARM, &[0xd82], "cortex-x4"),
    (ARM, &[0xd85], "cortex-x925"),
    (ARM, &[0xd87], "cortex-a725"),
    (QUALCOMM, &[0x001], "oryon"),
    (QUALCOMM, &[0x800], "cortex-a73"),
    (QUALCOMM, &[0x801], "cortex-a53"),
    (QUALCOMM, &[0x802], "cortex-a75"),
    (QUALCOMM, &[0x803, 0x805], "cortex-a55"),
    (QUALCOMM, &[0x804], "cortex-a76"),
    (APPLE, &[0x022, 0x024, 0x028], "icestorm"),
    (APPLE, &[0x023, 0x025, 0x029], "firestorm"),
    (APPLE, &[0x032, 0x034, 0x038], "blizzard"),
    (APPLE, &[0x033, 0x035, 0x039], "avalanche"),
];

/// Cache sizes in KiB by level (level 1: data cache) of cores that are built in only one size; 0 if designs differ. Many device
/// trees omit them.
const SIZES: &[(&str, [u32; 2])] = &[
    ("cortex-x1", [64, 0]),
    ("cortex-x2", [64, 0]),
    ("cortex-x3", [64, 0]),
    ("cortex-x4", [64, 0]),
    ("cortex-x925", [64, 0]),
    ("oryon", [96, 12 * 1024]),
];

/// Returns the size of a core's cache in KiB; `None` if designs differ or the core is unknown.
pub(super) fn cache_kib(part: Option<Part>, level: usize) -> Option<u32> {
    let sizes = SIZES.iter().find(|row| row.0 == arm(part).name)?.1;
    let size = sizes.get(level.checked_sub(1)?);
    size.copied().filter(|kib| *kib > 0)
}

/// Returns the core of a part number.
pub(super) fn arm(part: Option<Part>) -> &'static Uarch {
    let matches = |row: &&(u32, &[u32], &str)| {
        part.is_some_and(|p| row.0 == p.implementer && row.1.contains(&p.number))
    };
    PARTS
        .iter()
        .find(matches)
        .map_or(&GENERIC, |row| named(row.2))
}
