//! `linux`: places nothing, so the kernel's own scheduler decides everything.
//!
//! Idea: the baseline that every other policy has to beat. Source: the fair class of the running (or simulated) kernel. Assumes
//! nothing. Loses when cores are unequal or caches contended and the kernel cannot see it. Its result is a distribution over
//! seeds: compare with best, median and worst.

use countersteer_model::placement::Placement;
use countersteer_model::policy::{Policy, PolicyDef, PolicyRng, View};

/// Name of the policy that places nothing.
pub const NAME: &str = "linux";

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: NAME,
    summary: "places nothing: Linux's own scheduler decides",
    source: "Linux's fair class",
    params: &[],
    make: |_, _| Ok(Box::new(Linux)),
};

struct Linux;

impl Policy for Linux {
    fn decide(&mut self, _: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        Placement::default()
    }
}
