//! Facts that are common to all CPUs: vendor, model, kernel settings.
//!
//! Input: `/proc/cpuinfo`, the device tree or DMI, the kernel's configuration. Output: [`Platform`].

use std::collections::BTreeMap;

use countersteer_model::bounds;
use countersteer_model::units::CpuId;

use super::clock::{self, Mentioned};
use super::tree::SysRoot;
use crate::procfs::field;

/// Vendor of the processor, and its model number.
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

/// Arm implementer and part number, from the MIDR register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ArmPart {
    pub(super) implementer: u32,
    pub(super) number: u32,
}

impl ArmPart {
    /// Returns the part of a code that has the implementer above the 12 bits of the part number.
    pub(super) const fn of_code(code: u32) -> Self {
        Self {
            implementer: code >> 12,
            number: code & 0xfff,
        }
    }
}

/// PMU of a CPU of an Intel hybrid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HybridPmu {
    Core,
    Atom,
    LowPower,
}

pub(super) struct Platform {
    pub(super) vendor: Vendor,
    /// Name for messages: the processor, or the board if the processor has no name.
    pub(super) title: String,
    parts: PartNumbers,
    /// Constant clock mentioned in `/proc/cpuinfo`.
    pub(super) clock: Option<Mentioned>,
    pub(super) virtual_machine: bool,
    pub(super) hz: Option<u32>,
    /// True if energy-aware scheduling is enabled. On a kernel without support, the file is empty.
    pub(super) energy_aware: bool,
}

impl Platform {
    pub(super) fn read(tree: &SysRoot<'_>) -> Self {
        let cpuinfo = tree.cpuinfo();
        let field = |key: &str| field(&cpuinfo, key);
        let number = |key: &str| field(key).and_then(|v| v.parse::<u32>().ok()).unwrap_or(0);
        let family = number("cpu family");
        let model = number("model");
        let parts = PartNumbers::of(&cpuinfo);
        let is_arm = parts.are_known()
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
        let others = ["Model Name", "cpu", "uarch", "Hardware", "Processor"];
        let title = field("model name")
            .map(str::to_owned)
            .or_else(|| board.iter().find_map(|f| tree.text(f)))
            .or_else(|| Some(others.iter().find_map(|key| field(key))?.to_owned()));
        let virtual_machine =
            field("flags").is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor"));
        let is_x86 = matches!(vendor, Vendor::Intel { .. } | Vendor::Amd { .. });
        Self {
            vendor,
            title: title.unwrap_or_else(|| "Unknown machine".into()),
            parts,
            clock: clock::mentioned(&cpuinfo, is_x86, virtual_machine),
            virtual_machine,
            hz: kernel_hz(tree),
            energy_aware: tree.setting("sched_energy_aware").as_deref() == Some("1"),
        }
    }

    /// Returns the part number of a CPU in `/proc/cpuinfo`.
    pub(super) fn part(&self, cpu: CpuId) -> Option<ArmPart> {
        let own = self.parts.by_cpu.get(&cpu.0).copied();
        own.or(self.parts.of_all)
    }

    pub(super) fn is_x86(&self) -> bool {
        matches!(self.vendor, Vendor::Intel { .. } | Vendor::Amd { .. })
    }
}

fn hex(value: &str) -> Option<u32> {
    u32::from_str_radix(value.trim_start_matches("0x"), 16).ok()
}

/// Part numbers from `/proc/cpuinfo`: a block for each CPU, which begins with its number. Kernels before 3.10 print the part
/// once, in a separate block, for all CPUs.
#[derive(Default)]
struct PartNumbers {
    by_cpu: BTreeMap<u32, ArmPart>,
    of_all: Option<ArmPart>,
}

impl PartNumbers {
    fn of(cpuinfo: &str) -> Self {
        let mut parts = Self::default();
        for block in cpuinfo.split("\n\n") {
            let code = |key: &str| field(block, key).and_then(hex);
            let Some(number) = code("CPU part") else {
                continue;
            };
            let part = ArmPart {
                implementer: code("CPU implementer").unwrap_or(0),
                number,
            };
            match field(block, "processor").and_then(|cpu| cpu.parse().ok()) {
                Some(cpu) => drop(parts.by_cpu.insert(cpu, part)),
                None => parts.of_all = Some(part),
            }
        }
        parts
    }

    fn are_known(&self) -> bool {
        self.of_all.is_some() || !self.by_cpu.is_empty()
    }
}

/// Parses the part from a MIDR register as sysfs prints it: `0x00000000410fd871`.
pub(super) fn part_of_midr(midr: &str) -> Option<ArmPart> {
    let midr = hex(midr)?;
    Some(ArmPart {
        implementer: midr >> 24,
        number: midr >> 4 & 0xfff,
    })
}

fn kernel_hz(tree: &SysRoot<'_>) -> Option<u32> {
    let release = tree.setting("osrelease")?;
    let config = tree.text(&format!("boot/config-{release}"))?;
    config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ=")?.trim().parse().ok())
        .filter(|hz| bounds::HZ.check("hz", f64::from(*hz)).is_ok())
}
