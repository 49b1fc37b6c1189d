//! Parameters of policies: `key=value,key=value`.

use std::collections::BTreeMap;

use super::PolicyDef;
use crate::suggestion::suggestion;

/// Parameter of a policy.
pub struct ParamDef {
    /// Key; `*` stands for any key.
    pub key: &'static str,
    /// Default value as text.
    pub default: &'static str,
    /// Description, with unit and choices.
    pub prose: &'static str,
}

/// Parameters with defaults filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    values: BTreeMap<String, String>,
}

/// Error of creating a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No such policy.
    #[error("there is no policy `{name}`{}; there are {known}", suggestion(name, known.split(", ")))]
    Unknown {
        /// As written.
        name: String,
        /// All known names.
        known: String,
    },
    /// Name of an added policy that is already taken.
    #[error("there is a policy `{0}` already: give yours another name")]
    Taken(String),
    /// Unknown parameter.
    #[error("policy `{policy}` has no parameter `{key}`; it has {known}")]
    UnknownKey {
        /// The policy.
        policy: String,
        /// As written.
        key: String,
        /// All known keys.
        known: String,
    },
    /// The policy reads an unknown metric.
    #[error(
        "policy `{policy}` reads `{metric}`, which is neither a metric (`steer events` lists them) nor a formula over events that \
         adds like to like"
    )]
    NoMetric {
        /// The policy.
        policy: String,
        /// As the policy spells it.
        metric: &'static str,
    },
    /// Invalid value.
    #[error("policy parameter `{key}={value}`: {why}")]
    BadValue {
        /// The key.
        key: String,
        /// As written.
        value: String,
        /// Description of the error and of valid values.
        why: String,
    },
    /// The parameter cannot change while the policy runs.
    #[error("the policy takes this parameter only at its start")]
    Fixed,
    /// Text that is not `key=value`.
    #[error("policy parameter `{0}` is not `key=value`")]
    NotKeyValue(String),
}

impl Params {
    /// Parses `key=value,key=value` and fills in defaults.
    ///
    /// # Errors
    /// Fails on text that is not `key=value`, and on unknown keys, with the known ones.
    pub fn parse(def: &PolicyDef, text: &str) -> Result<Self, PolicyError> {
        let mut values: BTreeMap<String, String> = def
            .params
            .iter()
            .filter(|p| p.key != "*")
            .map(|p| (p.key.into(), p.default.into()))
            .collect();
        let any = def.params.iter().any(|p| p.key == "*");
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| PolicyError::NotKeyValue(part.into()))?;
            if !any && !values.contains_key(key.trim()) {
                let keys: Vec<_> = def.params.iter().map(|p| p.key).collect();
                let known = if keys.is_empty() {
                    "none".into()
                } else {
                    keys.join(", ")
                };
                return Err(PolicyError::UnknownKey {
                    policy: def.name.into(),
                    key: key.into(),
                    known,
                });
            }
            values.insert(key.trim().into(), value.trim().into());
        }
        Ok(Self { values })
    }

    /// Returns the text of a parameter; empty if the policy has no such parameter.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// Returns a number of at least `least`.
    ///
    /// # Errors
    /// Fails if the value is no such number.
    pub fn number(&self, key: &str, least: f64) -> Result<f64, PolicyError> {
        let bad = |why: String| PolicyError::BadValue {
            key: key.into(),
            value: self.text(key).into(),
            why,
        };
        let value: f64 = self
            .text(key)
            .parse()
            .map_err(|_| bad("it must be a number".into()))?;
        if value.is_finite() && value >= least {
            Ok(value)
        } else {
            Err(bad(format!("it must be at least {least}")))
        }
    }

    /// Returns one of several choices.
    ///
    /// # Errors
    /// Fails if the value is none of them.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, PolicyError> {
        let value = self.text(key);
        choices
            .iter()
            .find(|(word, _)| *word == value)
            .map(|(_, t)| *t)
            .ok_or_else(|| PolicyError::BadValue {
                key: key.into(),
                value: value.into(),
                why: format!(
                    "it must be one of {}",
                    choices
                        .iter()
                        .map(|(w, _)| *w)
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            })
    }

    /// Returns all keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}
