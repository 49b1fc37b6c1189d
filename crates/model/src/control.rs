//! Settings of the kernel in a workload file: control groups, and CPUs that go offline and online.
//!
//! Input: tables of a workload file. Output: checked values in the units of the kernel's own files.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{self, check_all};
use crate::cpuset::CpuSet;
use crate::placement::Clamp;
use crate::topology::Topology;
use crate::units::Nanos;

/// Control group (cgroup v2) of programs, a child of the root group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlGroup {
    /// Name by which programs refer to the group.
    pub name: String,
    /// Value of `cpu.weight`: the group's share of a contended CPU relative to other groups, and to single threads of
    /// weight 100.
    #[serde(default = "usual_weight")]
    pub weight: u32,
    /// Value of `cpu.max`, as in the kernel's file: CPU time per period and the period in microseconds, `50000 100000`, or `max`
    /// for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
}

/// Limit on the CPU time of a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBandwidth {
    /// CPU time of the group per period.
    pub quota: Nanos,
    pub period: Nanos,
}

/// CPUs that go offline or online during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hotplug {
    /// Time of the event.
    pub at_s: f64,
    /// CPUs as a list, such as `2-3`, or the name of a core group.
    pub cpus: String,
    /// True if the CPUs go online, false if they go offline.
    pub online: bool,
}

/// Settings of the kernel for a program's threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Control group of the threads; `None` for the root group.
    pub group: Option<Arc<ControlGroup>>,
    /// Utilisation clamp of each thread.
    pub clamp: Clamp,
    /// CPUs that the threads may use; `None` for all.
    pub allowed: Option<Arc<CpuSet>>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            group: None,
            clamp: Clamp::FREE,
            allowed: None,
        }
    }
}

const fn usual_weight() -> u32 {
    100
}

/// Period of `cpu.max` if the value has none.
const PERIOD_US: f64 = 100_000.0;

impl ControlGroup {
    /// Returns the limit that `max` describes; `None` if there is none.
    ///
    /// # Errors
    /// Returns a sentence with the error if `max` is not of the kernel's form or outside its limits.
    pub fn bandwidth(&self) -> Result<Option<CpuBandwidth>, String> {
        let Some(text) = &self.max else {
            return Ok(None);
        };
        let wrong = || {
            format!(
                "`max = \"{text}\"` is not of the form `QUOTA PERIOD` in microseconds, as in `50000 100000`, or `max`"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (quota, period) = match words[..] {
            [quota] => (quota, None),
            [quota, period] => (quota, Some(period)),
            _ => return Err(wrong()),
        };
        let period: f64 = period.map_or(Ok(PERIOD_US), |p| p.parse().map_err(|_| wrong()))?;
        bounds::PERIOD_US.check("max: PERIOD", period)?;
        if quota == "max" {
            return Ok(None);
        }
        let quota: f64 = quota.parse().map_err(|_| wrong())?;
        bounds::QUOTA_US.check("max: QUOTA", quota)?;
        let nanos = |us: f64| Nanos::from_secs_f64(us * 1e-6);
        Ok(Some(CpuBandwidth {
            quota: nanos(quota),
            period: nanos(period),
        }))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        check_all([("weight", bounds::GROUP_WEIGHT, f64::from(self.weight))])
            .map_err(|(_, why)| why)?;
        self.bandwidth().map(drop)
    }
}

impl Hotplug {
    pub(crate) fn check(&self) -> Result<(), String> {
        bounds::START.check("at_s", self.at_s)
    }

    /// Returns the CPUs of the event on a machine.
    ///
    /// # Errors
    /// Returns a sentence with the error if the machine has no such CPUs, or if all of them would go offline.
    pub fn cpus_on(&self, topology: &Topology) -> Result<Arc<CpuSet>, String> {
        let cpus = cpus_named("cpus", &self.cpus, topology)?;
        let all = topology.cpus.len();
        if !self.online && cpus.iter().count() == all {
            return Err(format!(
                "`cpus = \"{}\"` are all CPUs of {}; one must stay online",
                self.cpus, topology.name
            ));
        }
        Ok(cpus)
    }
}

/// Returns the CPUs that `place`, a value of `key`, names.
pub(crate) fn cpus_named(
    key: &str,
    place: &str,
    topology: &Topology,
) -> Result<Arc<CpuSet>, String> {
    if let Some(group) = topology.group_named(place) {
        return Ok(Arc::clone(&group.cpus));
    }
    let machine = &topology.name;
    let cpus: CpuSet = place
        .parse()
        .map_err(|e| format!("`{key} = \"{place}\"` names no core group of {machine}, and {e}"))?;
    let all = &topology.groups[0].cpus;
    if cpus.is_empty() || !cpus.is_subset(all) {
        return Err(format!("`{key} = \"{place}\"`: {machine} has CPUs {all}"));
    }
    Ok(Arc::new(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(max: &str) -> ControlGroup {
        ControlGroup {
            name: "g".into(),
            weight: 100,
            max: Some(max.into()),
        }
    }

    #[test]
    fn limits_are_written_as_in_the_kernels_file() {
        let limit = |quota_us: u64, period_us: u64| {
            Ok(Some(CpuBandwidth {
                quota: Nanos(quota_us * 1000),
                period: Nanos(period_us * 1000),
            }))
        };
        assert_eq!(group("50000 100000").bandwidth(), limit(50_000, 100_000));
        assert_eq!(group("20000").bandwidth(), limit(20_000, 100_000));
        assert_eq!(group("max 50000").bandwidth(), Ok(None));
        for wrong in ["", "50 %", "100 100000", "50000 5", "1 2 3"] {
            assert!(group(wrong).bandwidth().is_err(), "{wrong}");
        }
    }
}
