//! The registry: policies by name, those of this crate and those of other packages.

use std::sync::{Arc, PoisonError, RwLock};

use countersteer_core::policy::{Params, Policy, PolicyDef, PolicyError};
use countersteer_core::topology::Topology;

use crate::POLICIES;

/// Policies of other packages.
static ADDED: RwLock<Vec<&'static PolicyDef>> = RwLock::new(Vec::new());

/// Adds policies of another package; they must be added before any policy is looked up.
///
/// # Errors
/// A name is taken; then none is added.
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

/// Every policy: those of this crate, then those added.
#[must_use]
pub fn all() -> Vec<&'static PolicyDef> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    POLICIES.iter().chain(added.iter().copied()).collect()
}

/// The names of all policies.
#[must_use]
pub fn names() -> Vec<&'static str> {
    all().iter().map(|p| p.name).collect()
}

/// The policy of a name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static PolicyDef> {
    all().into_iter().find(|p| p.name == name)
}

/// Makes the policy that a specification names: `name` or `name:key=value,key=value`.
///
/// # Errors
/// Unknown names, keys and values, with those that exist.
pub fn parse(spec: &str, topology: &Arc<Topology>) -> Result<Box<dyn Policy>, PolicyError> {
    let (name, text) = spec.split_once(':').unwrap_or((spec, ""));
    let def = by_name(name.trim()).ok_or_else(|| PolicyError::Unknown {
        name: name.into(),
        known: names().join(", "),
    })?;
    (def.make)(&Params::parse(def, text)?, topology)
}
