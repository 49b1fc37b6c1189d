//! Parameters of policies: `key=value,key=value`.

use std::collections::BTreeMap;

use super::PolicyDef;

/// A parameter of a policy.
pub struct ParamDef {
    /// Key; `*` stands for any key.
    pub key: &'static str,
    /// Default, as it would be written.
    pub default: &'static str,
    /// What it does, with its unit and choices.
    pub prose: &'static str,
}

/// Parameters with defaults filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    values: BTreeMap<String, String>,
}

/// A policy that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No such policy.
    #[error("there is no policy `{name}`; there are {known}")]
    Unknown {
        /// As written.
        name: String,
        /// Every name.
        known: String,
    },
    /// A policy that was to be added.
    #[error("there is a policy `{0}` already: give yours another name")]
    Taken(String),
    /// No such parameter.
    #[error("policy `{policy}` has no parameter `{key}`; it has {known}")]
    UnknownKey {
        /// The policy.
        policy: String,
        /// As written.
        key: String,
        /// Every key.
        known: String,
    },
    /// What it reads is no metric.
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
    /// A value that cannot be used.
    #[error("policy parameter `{key}={value}`: {why}")]
    BadValue {
        /// The key.
        key: String,
        /// As written.
        value: String,
        /// What is wrong, and what would do.
        why: String,
    },
    /// A parameter that cannot be changed while the policy decides.
    #[error("the policy takes this parameter only at its start")]
    Fixed,
    /// Not `key=value`.
    #[error("policy parameter `{0}` is not `key=value`")]
    NotKeyValue(String),
}

impl Params {
    /// Reads `key=value,key=value` and fills in defaults.
    ///
    /// # Errors
    /// Text that is not `key=value`, and unknown keys, with those that exist.
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

    /// The text of a parameter; empty when it is not a parameter of the policy.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// A number of at least `least`.
    ///
    /// # Errors
    /// The value is no such number.
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

    /// One of several words.
    ///
    /// # Errors
    /// The value is none of them.
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

    /// All keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}
