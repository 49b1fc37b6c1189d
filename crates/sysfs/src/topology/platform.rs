//! What is the same for all CPUs: vendor, model, kernel settings.
//!
//! Input: `/proc/cpuinfo`, the device tree or DMI, the kernel's configuration. Output: [`Platform`].

use std::collections::BTreeMap;

use super::tree::Tree;
use crate::procfs::field;

/// The maker of the processor, and its model number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Intel {
        family: u32,
        model: u32,
    },
    Amd {
        family: u32,
        model: u32,
    },
    /// Part numbers are per CPU.
    Arm,
    Other,
}

/// An Arm implementer and part number, from the MIDR register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) implementer: u32,
    pub(super) number: u32,
}

pub(super) struct Platform {
    pub(super) vendor: Vendor,
    /// For people: the processor, or the board where the processor has no name.
    pub(super) title: String,
    /// Part numbers by CPU as `/proc/cpuinfo` has them.
    pub(super) parts: BTreeMap<u32, Part>,
    /// A clock that `/proc/cpuinfo` mentions.
    pub(super) mhz: Option<f64>,
    pub(super) virtual_machine: bool,
    pub(super) hz: Option<u32>,
    /// Whether energy-aware scheduling is on; a kernel that cannot do it has the file without content.
    pub(super) energy_aware: bool,
}

impl Platform {
    pub(super) fn read(tree: &Tree<'_>) -> Self {
        let cpuinfo = tree.proc().cpuinfo();
        let field = |key: &str| field(&cpuinfo, key);
        let number = |key: &str| field(key).and_then(|v| v.parse::<u32>().ok()).unwrap_or(0);
        let family = number("cpu family");
        let model = number("model");
        let parts = parts(&cpuinfo);
        let is_arm = !parts.is_empty()
            || tree
                .text("sys/devices/system/cpu/cpu0/regs/identification/midr_el1")
                .is_some();
        let vendor = match field("vendor_id") {
            Some("GenuineIntel") => Vendor::Intel { family, model },
            Some("AuthenticAMD" | "HygonGenuine") => Vendor::Amd { family, model },
            _ if is_arm => Vendor::Arm,
            _ => Vendor::Other,
        };
        let board = [
            "sys/firmware/devicetree/base/model",
            "sys/class/dmi/id/product_name",
        ];
        let title = field("model name")
            .map(str::to_owned)
            .or_else(|| board.iter().find_map(|f| tree.text(f)));
        Self {
            vendor,
            title: title.unwrap_or_else(|| "Unknown machine".into()),
            parts,
            mhz: field("cpu MHz")
                .and_then(|v| v.parse().ok())
                .filter(|mhz| *mhz > 1.0),
            virtual_machine: field("flags")
                .is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor")),
            hz: kernel_hz(tree),
            energy_aware: tree.proc().setting("sched_energy_aware").as_deref() == Some("1"),
        }
    }

    pub(super) fn is_x86(&self) -> bool {
        matches!(self.vendor, Vendor::Intel { .. } | Vendor::Amd { .. })
    }
}

fn hex(value: &str) -> Option<u32> {
    u32::from_str_radix(value.trim_start_matches("0x"), 16).ok()
}

/// `/proc/cpuinfo` has a block per CPU, each starting with its number.
fn parts(cpuinfo: &str) -> BTreeMap<u32, Part> {
    let mut cpu = 0;
    let mut implementer = 0;
    let mut parts = BTreeMap::new();
    for line in cpuinfo.lines() {
        if let Some(number) = field(line, "processor").and_then(|v| v.parse().ok()) {
            cpu = number;
        } else if let Some(code) = field(line, "CPU implementer").and_then(hex) {
            implementer = code;
        } else if let Some(number) = field(line, "CPU part").and_then(hex) {
            parts.insert(
                cpu,
                Part {
                    implementer,
                    number,
                },
            );
        }
    }
    parts
}

/// The part of a MIDR register as sysfs prints it: `0x00000000410fd871`.
pub(super) fn part_of_midr(midr: &str) -> Option<Part> {
    let midr = hex(midr)?;
    Some(Part {
        implementer: midr >> 24,
        number: midr >> 4 & 0xfff,
    })
}

fn kernel_hz(tree: &Tree<'_>) -> Option<u32> {
    let release = tree.proc().setting("osrelease")?;
    let config = tree.text(&format!("boot/config-{release}"))?;
    config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ=")?.trim().parse().ok())
}
