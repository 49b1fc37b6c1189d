//! Frequencies of cores: operating points, turbo, governor, power limit and idle states.
//!
//! These tables are part of a machine file. A core type without operating points always runs at its `freq_ghz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Governor of core types with operating points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Governor {
    /// Highest frequency that turbo and power limit allow.
    #[default]
    Performance,
    /// Frequency that follows utilisation: the kernel's `schedutil`. Utilisation clamps affect it.
    Schedutil,
}

impl Governor {
    /// Frequency governors with their names in machine files.
    pub const ALL: [(&'static str, Self); 2] = [
        ("performance", Self::Performance),
        ("schedutil", Self::Schedutil),
    ];

    /// Returns the governor's name in machine files.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = Self::ALL.iter().find(|(_, value)| *value == self);
        row.map_or("", |(name, _)| name)
    }

    /// Returns the governor with a name; `None` if the name is unknown.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|(known, _)| *known == name);
        row.map(|(_, value)| *value)
    }
}

/// Sustained power limit of the package.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PowerLimit {
    /// Limit on the moving average of the power. While it is exceeded, all cores step down the operating points one by one.
    pub watts: f64,
    /// Time constant of the moving average: duration for which a burst from idle may exceed the limit.
    pub seconds: f64,
}

/// Frequencies of a core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frequencies {
    /// Operating points, slowest first. One of them is at the core type's `freq_ghz`, where its power values hold.
    pub points: Vec<OperatingPoint>,
    /// Largest frequency while 1, 2, ... cores of the type are busy, the last one for more; `freq_ghz` if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turbo_ghz: Vec<f64>,
    /// True if all cores of a `[[cores]]` entry share one clock, that of the highest demand; otherwise each has its own.
    #[serde(default)]
    pub shared: bool,
}

/// Frequency and its cost: a voltage, or power at full load. With neither, the voltage is that of `freq_ghz`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    pub ghz: f64,
    /// Voltage; power is proportional to its square times the frequency. All points of a type have one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volts: Option<f64>,
    /// Power of a busy core. All points of a type have one, or none; only their ratios matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
}

/// Idle states of a core, before the deep one of `power.idle_w`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleStates {
    /// Power of an idle core with its clock gated.
    pub clock_gated_w: f64,
    /// Idle time after which the core's power is gated as well.
    pub power_gated_after_us: f64,
}

/// Operating point of a core type, with its power in relative units for the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub ghz: f64,
    /// Power of a busy core relative to its power at the type's `freq_ghz`, at equal instructions per cycle.
    pub power: f64,
}

impl Point {
    /// Returns the energy per instruction at this point relative to that at `nominal`, the type's `freq_ghz`.
    #[must_use]
    pub fn energy(&self, nominal: f64) -> f64 {
        self.power / (self.ghz / nominal)
    }
}

impl Frequencies {
    /// Returns the operating points, slowest first, with powers relative to the point at `nominal` GHz.
    #[must_use]
    pub fn scaled(&self, nominal: f64) -> Vec<Point> {
        let reference = self.points.iter().find(|p| p.ghz == nominal);
        let scaled = self.points.iter().map(|p| Point {
            ghz: p.ghz,
            power: reference.map_or(1.0, |reference| p.power_over(reference)),
        });
        scaled.collect()
    }

    /// Returns the index of the fastest permitted operating point while `active` cores of the type are busy.
    #[must_use]
    pub fn fastest(&self, active: usize, nominal: f64) -> usize {
        let last = self.turbo_ghz.len().saturating_sub(1);
        let turbo = self.turbo_ghz.get(active.saturating_sub(1).min(last));
        let most = turbo.copied().unwrap_or(nominal);
        let within = self.points.partition_point(|p| p.ghz <= most);
        within.saturating_sub(1)
    }

    /// Returns a description of the first invalid value; `None` if all are valid.
    pub(super) fn fault(&self, nominal: f64) -> Option<String> {
        let known = |ghz: f64| self.points.iter().any(|p| p.ghz == ghz);
        if !self.points.is_sorted_by(|a, b| a.ghz < b.ghz) || self.points.is_empty() {
            return Some("`points` needs one or more, slowest first".into());
        }
        if !known(nominal) {
            return Some(format!(
                "one of `points` must be at `freq_ghz`, {nominal} GHz"
            ));
        }
        if let Some(ghz) = self.turbo_ghz.iter().find(|ghz| !known(**ghz)) {
            return Some(format!("`turbo_ghz` names {ghz} GHz, which no point has"));
        }
        let all_or_none = |of: fn(&OperatingPoint) -> bool| {
            let with = self.points.iter().filter(|p| of(p)).count();
            with == 0 || with == self.points.len()
        };
        if !all_or_none(|p| p.volts.is_some()) || !all_or_none(|p| p.watts.is_some()) {
            return Some("all `points` have `volts`, or all `watts`, or none".into());
        }
        let both = self
            .points
            .iter()
            .any(|p| p.volts.is_some() && p.watts.is_some());
        both.then(|| "`points` have `volts` or `watts`, not both".into())
    }
}

impl OperatingPoint {
    fn power_over(&self, reference: &Self) -> f64 {
        let clock = self.ghz / reference.ghz;
        match (self.volts, reference.volts, self.watts, reference.watts) {
            (Some(v), Some(v0), ..) => (v / v0).powi(2) * clock,
            (.., Some(w), Some(w0)) => w / w0,
            _ => clock,
        }
    }
}

impl IdleStates {
    /// Returns the energy (nJ) of `ns` nanoseconds of idling; `gated_w` is the power in the deep idle state.
    #[must_use]
    pub fn energy_nj(&self, ns: f64, gated_w: f64) -> f64 {
        let shallow = ns.min(self.power_gated_after_us * 1e3);
        self.clock_gated_w * shallow + gated_w * (ns - shallow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: &[(f64, Option<f64>, Option<f64>)]) -> Frequencies {
        let point = |(ghz, volts, watts): &(f64, Option<f64>, Option<f64>)| OperatingPoint {
            ghz: *ghz,
            volts: *volts,
            watts: *watts,
        };
        Frequencies {
            points: of.iter().map(point).collect(),
            turbo_ghz: Vec::new(),
            shared: false,
        }
    }

    #[test]
    fn power_goes_with_frequency_and_the_square_of_voltage() {
        let volts = points(&[(1.0, Some(0.8), None), (2.0, Some(1.0), None)]).scaled(2.0);
        assert!((volts[0].power - 0.64 / 2.0).abs() < 1e-12);
        assert!((volts[0].energy(2.0) - 0.64).abs() < 1e-12);
        assert_eq!((volts[1].power, volts[1].energy(2.0)), (1.0, 1.0));
        let watts = points(&[(1.0, None, Some(0.1)), (2.0, None, Some(0.4))]).scaled(2.0);
        assert_eq!((watts[0].power, watts[0].energy(2.0)), (0.25, 0.5));
    }

    #[test]
    fn turbo_counts_active_cores() {
        let mut f = points(&[(3.0, None, None), (4.0, None, None), (5.0, None, None)]);
        assert_eq!(
            f.fastest(1, 4.0),
            1,
            "without turbo the nominal frequency is the fastest"
        );
        f.turbo_ghz = vec![5.0, 5.0, 4.0];
        assert_eq!([0, 1, 2, 3, 8].map(|n| f.fastest(n, 4.0)), [2, 2, 2, 1, 1]);
    }

    #[test]
    fn a_core_that_idles_long_enough_is_gated() {
        let states = IdleStates {
            clock_gated_w: 0.5,
            power_gated_after_us: 100.0,
        };
        assert_eq!(states.energy_nj(50e3, 0.1), 25e3);
        assert_eq!(states.energy_nj(1e6, 0.1), 0.5 * 1e5 + 0.1 * 9e5);
    }
}
