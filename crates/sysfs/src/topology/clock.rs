//! Clock frequencies: the maximum if the kernel reports it, or else the nominal one. A momentary clock is not used if it may be
//! that of an idle core.
//!
//! Input: sysfs for each CPU, `/proc/cpuinfo` for the machine. Output: clocks, each with its kind.

use std::collections::BTreeMap;

use countersteer_model::bounds;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use super::tree::SysRoot;
use crate::procfs::field;

/// Kind of clock that the CPUs' files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    Highest,
    Nominal,
    Nothing,
}

/// Files of a CPU with its clock, best first, with the kind of clock and the unit in kHz.
const FILES: [(&str, Reported, u64); 3] = [
    ("cpufreq/cpuinfo_max_freq", Reported::Highest, 1),
    ("cpufreq/base_frequency", Reported::Nominal, 1),
    // Without a driver for boost clocks, the nominal clock may still be available.
    ("acpi_cppc/nominal_freq", Reported::Nominal, 1000),
];

/// Returns the clock (kHz) of each CPU, all from one kind of file: clocks of different kinds cannot be compared.
pub(super) fn reported(
    tree: &SysRoot<'_>,
    base: &str,
    online: &CpuSet,
) -> (Reported, BTreeMap<CpuId, u64>) {
    for (file, what, unit) in FILES {
        let clock = |cpu: CpuId| {
            let number = tree.number(&format!("{base}/cpu{}/{file}", cpu.0))?;
            let khz = number.checked_mul(unit)?;
            possible(khz as f64 / 1e6).then_some((cpu, khz))
        };
        let clocks: BTreeMap<CpuId, u64> = online.iter().filter_map(clock).collect();
        if !clocks.is_empty() {
            return (what, clocks);
        }
    }
    (Reported::Nothing, BTreeMap::new())
}

fn possible(ghz: f64) -> bool {
    bounds::FREQUENCY.check("clock", ghz).is_ok()
}

/// Clock from `/proc/cpuinfo`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mentioned {
    pub(super) ghz: f64,
    /// Description for messages.
    pub(super) what: &'static str,
}

/// Returns the nominal clock, from the processor's name or BogoMIPS, or else a clock that does not change.
///
/// x86 kernels count BogoMIPS as twice the frequency of the time-stamp counter, which is the nominal clock (Linux,
/// `arch/x86/kernel/tsc.c`, `lpj_fine`). There, `cpu MHz` is momentary, except in virtual machines, which see the nominal clock.
pub(super) fn mentioned(cpuinfo: &str, is_x86: bool, is_virtual: bool) -> Option<Mentioned> {
    let mentioned = |ghz: f64, what| Mentioned {
        ghz: (ghz * 1000.0).round() / 1000.0,
        what,
    };
    let most = |key: &str| {
        let lines = cpuinfo.lines().filter_map(|line| field(line, key));
        let figures = lines.filter_map(|v| v.trim_end_matches("MHz").trim().parse::<f64>().ok());
        figures
            .filter(|mhz| possible(mhz / 1000.0))
            .reduce(f64::max)
    };
    let named = field(cpuinfo, "model name").and_then(ghz_in_name);
    if let Some(ghz) = named {
        return Some(mentioned(ghz, "the nominal one in the processor's name"));
    }
    if is_x86 {
        let nominal = most("bogomips").filter(|mips| *mips > 100.0);
        if let Some(mips) = nominal {
            return Some(mentioned(
                mips / 2000.0,
                "the nominal one, half of BogoMIPS",
            ));
        }
    }
    let constant: &[&str] = match (is_x86, is_virtual) {
        (true, false) => &[],
        (true, true) => &["cpu MHz"],
        (false, _) => &["cpu MHz static", "CPU MHz", "cpu MHz", "clock"],
    };
    let mhz = constant.iter().find_map(|key| most(key))?;
    Some(mentioned(mhz / 1000.0, "that of /proc/cpuinfo"))
}

/// Parses `1.8` from `Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz`.
fn ghz_in_name(name: &str) -> Option<f64> {
    let units = [("GHz", 1.0), ("MHz", 1000.0)];
    let ghz = units.iter().find_map(|(unit, per_ghz)| {
        let before = name[..name.find(unit)?].trim_end();
        let digits = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number: f64 = before[digits.len()..].parse().ok()?;
        Some(number / per_ghz)
    });
    ghz.filter(|ghz| possible(*ghz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_nominal_clocks() {
        let of = ghz_in_name;
        assert_eq!(of("Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz"), Some(1.8));
        assert_eq!(of("Intel(R) Pentium(R) 4 CPU 3.00 GHz"), Some(3.0));
        assert_eq!(of("Mobile Pentium MMX 233MHz"), Some(0.233));
        assert_eq!(of("AMD EPYC 7713 64-Core Processor"), None);
        assert_eq!(of("Test @ GHz"), None);
    }

    #[test]
    fn a_momentary_clock_is_not_used() {
        let idle = "model name : Test CPU\ncpu MHz : 800.0\n";
        assert_eq!(mentioned(idle, true, false), None);
        let guest = mentioned(idle, true, true).map(|m| m.ghz);
        assert_eq!(guest, Some(0.8), "a virtual machine sees one clock");
        let of_tsc = format!("{idle}bogomips : 4199.99\n");
        assert_eq!(mentioned(&of_tsc, true, false).map(|m| m.ghz), Some(2.1));
        let power = "processor : 0\nclock : 3000.000000MHz\n\nprocessor : 1\nclock : 3550.0MHz\n";
        assert_eq!(mentioned(power, false, false).map(|m| m.ghz), Some(3.55));
    }
}
