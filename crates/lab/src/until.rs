//! A policy that decides for a limited time.

use std::sync::Arc;

use countersteer_model::engine::Span;
use countersteer_model::placement::{Placement, Target, ThreadPlacement};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, decide};
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

/// Policy that decides until a given time and then releases all threads.
pub struct Until {
    inner: Box<dyn Policy>,
    end: Option<Nanos>,
    released: bool,
    /// True if the policy placed a thread, changed its weight or clamp, or partitioned a cache.
    pub acted: bool,
}

impl Until {
    /// Creates a policy that decides as `inner` does until `end`; `None` for no end.
    #[must_use]
    pub fn new(inner: Box<dyn Policy>, end: Option<Nanos>) -> Self {
        Self {
            inner,
            end,
            released: false,
            acted: false,
        }
    }
}

impl Policy for Until {
    fn needs(&self) -> &Needs {
        self.inner.needs()
    }

    fn needs_changed(&mut self) -> bool {
        self.inner.needs_changed()
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        self.inner.tune(params, topology)
    }

    fn switched(&mut self, ended: &[Span]) {
        self.inner.switched(ended);
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        if self.end.is_none_or(|end| view.now < end) {
            let placement = decide(self.inner.as_mut(), view, rng);
            let acts = |t: &ThreadPlacement| {
                t.target != Target::Anywhere || t.weight.is_some() || t.clamp.is_some()
            };
            self.acted |= placement.threads.iter().any(acts)
                || placement.caches.as_ref().is_some_and(|c| !c.is_empty());
            return placement;
        }
        if std::mem::replace(&mut self.released, true) {
            return Placement::default();
        }
        view.release("the policy's time is over")
    }
}
