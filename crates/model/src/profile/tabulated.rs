//! Tabulated profiles: speeds that were measured or published for named core types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Source;
use crate::bounds::{self, check_all};
use crate::textfile::{TextError, parse_toml};

/// Schema identifier in every tabulated profile.
pub const SCHEMA: &str = "countersteer.table/1";

/// Speed of a program on each core type it was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tabulated {
    /// `countersteer.table/1`.
    pub schema: String,
    /// Short name of the program.
    pub name: String,
    /// Source of the measurement, its method, and its publication.
    pub source: Source,
    /// Number of instructions of one run, in billions.
    pub giga_instructions: f64,
    /// One table per core type.
    pub core: Vec<CoreTable>,
}

/// Speed of the program on one core type, against cache size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreTable {
    /// Name of the core type in machine files.
    pub core_type: String,
    /// Frequency of the measurement.
    pub freq_ghz: f64,
    /// Mispredicted branches per kilo-instruction, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_mpki: Option<f64>,
    /// Branches per instruction, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<f64>,
    /// Power of the core while running the program, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Speed by available size of the last-level cache; one point if only one size was measured.
    pub points: Vec<TablePoint>,
}

/// Speed with a given amount of last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TablePoint {
    /// Size of the last-level cache available to the program.
    pub cache_kib: f64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// Last-level misses per kilo-instruction, if known; without them, contention ignores the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_mpki: Option<f64>,
}

impl Tabulated {
    /// Parses and checks the TOML text of a tabulated profile.
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, another schema, or invalid values.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let table: Self = parse_toml(path, text)?;
        table.check().map_err(|why| TextError::value(path, why))?;
        Ok(table)
    }

    /// Returns the number of instructions of one run.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        (self.giga_instructions * 1e9).round() as u64
    }

    /// Returns the table of speeds for a core type; `None` if the profile has none.
    #[must_use]
    pub fn on(&self, core_type: &str) -> Option<&CoreTable> {
        self.core.iter().find(|c| c.core_type == core_type)
    }

    fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!(
                "schema is `{}`, this version reads `{SCHEMA}`",
                self.schema
            ));
        }
        bounds::GIGA_INSTRUCTIONS.check("giga_instructions", self.giga_instructions)?;
        if self.core.is_empty() {
            return Err("there is no `[[core]]` table".into());
        }
        for core in &self.core {
            core.check()
                .map_err(|why| format!("core type `{}`: {why}", core.core_type))?;
        }
        Ok(())
    }
}

impl CoreTable {
    fn check(&self) -> Result<(), String> {
        if self.points.is_empty() {
            return Err("there is no point".into());
        }
        let of_core = [
            ("freq_ghz", bounds::FREQUENCY, Some(self.freq_ghz)),
            (
                "branch_mpki",
                bounds::PER_KILO_INSTRUCTION,
                self.branch_mpki,
            ),
            ("branches", bounds::SHARE, self.branches),
            ("power_w", bounds::POWER, self.power_w),
        ];
        let of_points = self.points.iter().flat_map(|p| {
            [
                ("cache_kib", bounds::CACHE_SIZE, Some(p.cache_kib)),
                ("ipc", bounds::IPC, Some(p.ipc)),
                ("llc_mpki", bounds::PER_KILO_INSTRUCTION, p.llc_mpki),
            ]
        });
        let given = of_core
            .into_iter()
            .chain(of_points)
            .filter_map(|(key, bounds, value)| Some((key, bounds, value?)));
        check_all(given).map_err(|(_, why)| why)
    }
}
