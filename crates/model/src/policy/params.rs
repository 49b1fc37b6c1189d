//! Parameters of policies, given as `key=value,key=value`.

use std::collections::BTreeMap;

use super::PolicyDef;
use crate::suggestion::suggestion;

/// Definition of a parameter of a policy.
pub struct ParamDef {
    /// Key of the parameter; `*` stands for any key.
    pub key: &'static str,
    /// Default value of the parameter, as text.
    pub default: &'static str,
    /// Description of the parameter, with its unit or choices.
    pub prose: &'static str,
}

/// Values of a policy's parameters, including defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    values: BTreeMap<String, String>,
}

/// Error of creating a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("there is no policy `{name}`{}; there are {known}", suggestion(name, known.split(", ")))]
    Unknown {
        /// Name as the user wrote it.
        name: String,
        /// Names of all known policies, separated by commas.
        known: String,
    },
    /// Another policy already has the name of an added policy.
    #[error("there is a policy `{0}` already: give yours another name")]
    Taken(String),
    /// The policy has no parameter with this key.
    #[error("policy `{policy}` has no parameter `{key}`; it has {known}")]
    UnknownKey {
        /// Name of the policy.
        policy: String,
        /// Key as the user wrote it.
        key: String,
        /// Keys of all parameters of the policy, separated by commas.
        known: String,
    },
    /// The policy reads a metric that does not exist.
    #[error(
        "policy `{policy}` reads `{metric}`, which is neither a metric (`steer events` lists them) nor a formula over events that \
         adds like to like"
    )]
    NoMetric {
        /// Name of the policy.
        policy: String,
        /// Name of the metric as the policy spells it.
        metric: &'static str,
    },
    /// The value of a parameter is invalid.
    #[error("policy parameter `{key}={value}`: {why}")]
    BadValue {
        /// Key of the parameter.
        key: String,
        /// Value as the user wrote it.
        value: String,
        /// Description of the error and of the valid values.
        why: String,
    },
    /// The policy's parameters cannot change while it runs.
    #[error("the policy takes this parameter only at its start")]
    Fixed,
    /// An item of the parameters is not `key=value`.
    #[error("policy parameter `{0}` is not `key=value`")]
    NotKeyValue(String),
}

impl Params {
    /// Parses `key=value,key=value` for a policy and adds the defaults of the other parameters.
    ///
    /// # Errors
    /// Fails on an item that is not `key=value`, and on an unknown key; the error lists the known keys.
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

    /// Returns the value of a parameter as text; empty if the policy has no such parameter.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// Returns the value of a parameter as a number of at least `least`.
    ///
    /// # Errors
    /// Fails if the value is not a number, or less than `least`.
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

    /// Returns the choice that the value of a parameter names.
    ///
    /// # Errors
    /// Fails if the value is not one of `choices`.
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

    /// Iterates over the keys and values of all parameters, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}
