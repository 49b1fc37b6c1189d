//! Rules: which processes of a host are steered, and which are never touched.
//!
//! Input: TOML text; what is known of a process. Output: whether it is steered. A process is when one row of `steer` fits and no
//! row of `never` does. A row fits when everything it names does; `*` and `?` stand for any characters and one character.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::textfile::{TextError, parse_toml, table_line};

/// The schema name that a rules file carries.
pub const SCHEMA: &str = "countersteer.rules/1";

/// A rules file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// `countersteer.rules/1`.
    pub schema: String,
    /// The policy with its parameters.
    #[serde(default = "linux")]
    pub policy: String,
    /// Time between decisions.
    #[serde(default = "tenth")]
    pub period_ms: f64,
    /// Whom to steer.
    #[serde(default)]
    pub steer: Vec<Row>,
    /// Whom never to touch.
    #[serde(default)]
    pub never: Vec<Row>,
    /// Whether the policy must prove itself again and again.
    #[serde(default)]
    pub trust: Option<Trust>,
}

/// A row of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The process's name, as in `/proc/PID/comm`: at most 15 characters.
    #[serde(default)]
    pub name: Option<String>,
    /// The user's name or number.
    #[serde(default)]
    pub user: Option<String>,
    /// The control group's path, below the root of control groups.
    #[serde(default)]
    pub cgroup: Option<String>,
}

/// How a policy must prove itself: now and then Linux's own scheduler decides, and the two are compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// Length of the policy's turns.
    #[serde(default = "minute")]
    pub policy_s: f64,
    /// Length of Linux's turns.
    #[serde(default = "ten")]
    pub linux_s: f64,
    /// The policy is given up when its gain lies, with 95 % confidence, below the predicted one by more than this.
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

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// Its user's names and number.
    pub users: Vec<String>,
    /// Its control group.
    pub cgroup: String,
}

impl Rules {
    /// Parses and checks a rules file.
    ///
    /// # Errors
    /// Syntax, unknown fields, rows that fit everybody, impossible times; with the line.
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
                let why = format!("a row of `{table}` names nothing; `name = \"*\"` is everybody");
                return Err(match table_line(text, table, nth) {
                    Some(line) => TextError::at_line(path, text, line, why),
                    None => TextError::value(path, why),
                });
            }
        }
        if rules.steer.is_empty() {
            return Err(TextError::value(
                path,
                "nobody is steered: there is no `[[steer]]`",
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

    /// Whether a process is steered.
    #[must_use]
    pub fn covers(&self, process: &Process) -> bool {
        let fits = |rows: &[Row]| rows.iter().any(|row| row.fits(process));
        fits(&self.steer) && !fits(&self.never)
    }
}

impl Row {
    fn fits(&self, process: &Process) -> bool {
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

    fn process(name: &str, user: &str, cgroup: &str) -> Process {
        Process {
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
