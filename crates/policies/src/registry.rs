//! Registry of policies by name: those of this crate and those of other packages.

use std::sync::{Arc, PoisonError, RwLock};

use countersteer_model::metric::resolve;
use countersteer_model::policy::{Params, Policy, PolicyDef, PolicyError};
use countersteer_model::topology::Topology;

use crate::foreground::{self, ForegroundPolicy};
use crate::{FILES, POLICIES};

/// Policies that other packages added.
static ADDED: RwLock<Vec<&'static PolicyDef>> = RwLock::new(Vec::new());

/// Adds policies of another package. Call this before any policy is looked up.
///
/// # Errors
/// [`PolicyError::Taken`] if a name is in use; no policy is added then.
pub fn add(policies: &'static [PolicyDef]) -> Result<(), PolicyError> {
    let mut names: Vec<&str> = names();
    for policy in policies {
        if names.contains(&policy.name) {
            return Err(PolicyError::Taken(policy.name.into()));
        }
        names.push(policy.name);
    }
    ADDED
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(policies);
    Ok(())
}

/// Replaces the added policy of the same name; does nothing if no added policy has this name. Existing policy objects do not
/// change.
pub fn replace(policy: &'static PolicyDef) {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = added.iter_mut().find(|known| known.name == policy.name) {
        *known = policy;
    }
}

/// Every policy: first those of this crate, then the added ones.
#[must_use]
pub fn all() -> Vec<&'static PolicyDef> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    POLICIES.iter().chain(added.iter().copied()).collect()
}

/// Names of all policies.
#[must_use]
pub fn names() -> Vec<&'static str> {
    all().iter().map(|p| p.name).collect()
}

/// Policy of this name; `None` if there is none.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static PolicyDef> {
    all().into_iter().find(|p| p.name == name)
}

/// Head of a policy's file: idea, source, decisions, weaknesses. `None` for policies of other packages.
#[must_use]
pub fn head(name: &str) -> Option<String> {
    let (_, file) = FILES.iter().find(|(known, _)| *known == name)?;
    let lines = file.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<&str> = lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
    Some(lines.join("\n").trim().to_owned())
}

/// Makes the policy that a specification names: `name` or `name:key=value,key=value`.
///
/// # Errors
/// Fails for unknown names, keys and values (the error lists the valid ones), and for metrics that do not exist.
pub fn parse(spec: &str, topology: &Arc<Topology>) -> Result<Box<dyn Policy>, PolicyError> {
    let (inner, first) = foreground::split(spec);
    let (def, params) = params(&inner)?;
    let policy = (def.make)(&params, topology)?;
    let mut read = policy.needs().metrics.iter();
    match read.find(|metric| resolve(metric).is_none()) {
        Some(metric) => Err(PolicyError::NoMetric {
            policy: def.name.to_owned(),
            metric,
        }),
        None => Ok(match first {
            Some(program) => Box::new(ForegroundPolicy::new(policy, program)),
            None => policy,
        }),
    }
}

/// Policy that a specification names, and its parameters.
///
/// # Errors
/// Fails for unknown names and keys; the error lists the valid ones.
pub fn params(spec: &str) -> Result<(&'static PolicyDef, Params), PolicyError> {
    let (spec, _) = foreground::split(spec);
    let (name, text) = spec.split_once(':').unwrap_or((&spec, ""));
    let def = by_name(name.trim()).ok_or_else(|| PolicyError::Unknown {
        name: name.into(),
        known: names().join(", "),
    })?;
    Ok((def, Params::parse(def, text)?))
}

/// Specification with parameter `key` set to `value`.
#[must_use]
pub fn with_param(spec: &str, key: &str, value: &str) -> String {
    let (name, text) = spec.split_once(':').unwrap_or((spec, ""));
    let is_other = |part: &&str| part.split('=').next().is_some_and(|k| k.trim() != key);
    let kept = text
        .split(',')
        .filter(|p| !p.trim().is_empty())
        .filter(is_other);
    let parts: Vec<String> = kept
        .map(str::to_owned)
        .chain([format!("{key}={value}")])
        .collect();
    format!("{name}:{}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_replaced_or_added() {
        assert_eq!(with_param("hsf", "margin", "0.1"), "hsf:margin=0.1");
        assert_eq!(
            with_param("hsf:margin=0.2,sf=work", "margin", "0.1"),
            "hsf:sf=work,margin=0.1"
        );
    }
}
