//! Rules that select which processes of a host to steer and which to leave alone.
//!
//! Input: TOML text, and data about a process. Output: true if the process is to be steered. This is the case if a row of
//! `steer` matches and no row of `never` does. A row matches if all its fields match; `*` matches any characters and `?` one
//! character.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::textfile::{TextError, parse_toml};
use crate::toml_lines::table_line;

/// Schema identifier in every rules file.
pub const SCHEMA: &str = "countersteer.rules/1";

/// Rules file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// `countersteer.rules/1`.
    pub schema: String,
    /// Policy with its parameters.
    #[serde(default = "linux")]
    pub policy: String,
    /// Time between decisions.
    #[serde(default = "tenth")]
    pub period_ms: f64,
    /// Processes to steer.
    #[serde(default)]
    pub steer: Vec<Row>,
    /// Processes never to steer.
    #[serde(default)]
    pub never: Vec<Row>,
    /// Repeated trials of the policy; absent: none.
    #[serde(default)]
    pub trust: Option<Trust>,
}

/// Condition on a process: all fields that are given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the process, as in `/proc/PID/comm`: at most 15 characters.
    #[serde(default)]
    pub name: Option<String>,
    /// Name or number of the user.
    #[serde(default)]
    pub user: Option<String>,
    /// Path of the control group, below the root of control groups.
    #[serde(default)]
    pub cgroup: Option<String>,
}

/// Repeated trials of a policy: Linux's own scheduler decides from time to time, and the two are compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// Length of the policy's blocks.
    #[serde(default = "minute")]
    pub policy_s: f64,
    /// Length of Linux's blocks.
    #[serde(default = "ten")]
    pub linux_s: f64,
    /// Margin: the policy is dropped if its gain is below the predicted one by more than this, with 95 % confidence.
    #[serde(default = "margin")]
    pub margin: f64,
}

fn linux() -> String {
    "linux".into()
}

const fn tenth() -> f64 {
    100.0
}

const fn minute() -> f64 {
    60.0
}

const fn ten() -> f64 {
    10.0
}

const fn margin() -> f64 {
    0.02
}

/// Properties of a process that rules compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuledProcess {
    /// Name of the process.
    pub name: String,
    /// Names and UID of the process's user.
    pub users: Vec<String>,
    /// Path of the process's control group.
    pub cgroup: String,
}

impl Rules {
    /// Parses and checks a rules file.
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, a row that matches every process, or an impossible time; the error
    /// contains the line.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let rules: Self = parse_toml(path, text)?;
        if rules.schema != SCHEMA {
            return Err(TextError::value(
                path,
                format!("`schema` is `{}`, not `{SCHEMA}`", rules.schema),
            ));
        }
        for (table, rows) in [("steer", &rules.steer), ("never", &rules.never)] {
            if let Some(nth) = rows.iter().position(|row| *row == Row::default()) {
                let why =
                    format!("a row of `{table}` names nothing; `name = \"*\"` is every process");
                return Err(match table_line(text, table, nth) {
                    Some(line) => TextError::at_line(path, text, line, why),
                    None => TextError::value(path, why),
                });
            }
        }
        if rules.steer.is_empty() {
            return Err(TextError::value(
                path,
                "no process is steered: there is no `[[steer]]`",
            ));
        }
        let positive = |x: f64| x > 0.0 && x <= 1e6;
        let trust = rules
            .trust
            .iter()
            .all(|t| positive(t.policy_s) && positive(t.linux_s) && t.margin >= 0.0);
        if !positive(rules.period_ms) || !trust {
            return Err(TextError::value(
                path,
                "times must be above 0 and at most a million, `margin` at least 0",
            ));
        }
        Ok(rules)
    }

    /// True if the rules select a process for steering.
    #[must_use]
    pub fn covers(&self, process: &RuledProcess) -> bool {
        let fits = |rows: &[Row]| rows.iter().any(|row| row.fits(process));
        fits(&self.steer) && !fits(&self.never)
    }
}

impl Row {
    fn fits(&self, process: &RuledProcess) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern
                .as_deref()
                .is_none_or(|pattern| WildMatch::new(pattern).matches(text))
        };
        let user = self.user.is_none() || process.users.iter().any(|user| fits(&self.user, user));
        fits(&self.name, &process.name) && user && fits(&self.cgroup, &process.cgroup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
schema = "countersteer.rules/1"
policy = "hsf:margin=0.1"
[[steer]]
cgroup = "/user.slice/*"
[[steer]]
name = "ffmpeg"
user = "render"
[[never]]
name = "*wm"
"#;

    fn process(name: &str, user: &str, cgroup: &str) -> RuledProcess {
        RuledProcess {
            name: name.into(),
            users: vec![user.into(), "1000".into()],
            cgroup: cgroup.into(),
        }
    }

    #[test]
    fn a_row_fits_when_all_it_names_does_and_never_wins() {
        let rules = Rules::parse("rules.toml", TEXT).unwrap();
        assert!(rules.covers(&process("make", "anna", "/user.slice/user-1000.slice")));
        assert!(!rules.covers(&process("kwm", "anna", "/user.slice/user-1000.slice")));
        assert!(rules.covers(&process("ffmpeg", "render", "/system.slice/render.service")));
        assert!(!rules.covers(&process("ffmpeg", "anna", "/system.slice/render.service")));
    }

    #[test]
    fn rows_without_names_and_unknown_keys_are_refused_with_their_line() {
        let error = Rules::parse("r.toml", &format!("{TEXT}[[never]]\n")).unwrap_err();
        assert_eq!(error.line, Some(11), "{error}");
        assert_eq!(
            Rules::parse("r.toml", &TEXT.replace("user =", "usr ="))
                .unwrap_err()
                .line,
            Some(8)
        );
        assert!(Rules::parse("r.toml", "schema = \"countersteer.rules/1\"\n").is_err());
    }
}
