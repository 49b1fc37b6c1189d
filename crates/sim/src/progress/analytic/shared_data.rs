//! Sharing of data by a behaviour, as the recording measured it, at the sizes of a machine's caches.

use countersteer_model::profile::Behaviour;

/// Sharing of a behaviour, per instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BehaviourSharing {
    /// Fraction of the far accesses that are to shared lines.
    pub shared: f64,
    /// First accesses to lines that another thread touched before.
    pub touched_before: f64,
    /// Accesses that hit private caches but for another thread's store.
    pub invalidated: f64,
    /// Accesses that hit the last-level cache but for another thread's store behind another one.
    pub invalidated_outside: f64,
}

impl BehaviourSharing {
    /// Creates the sharing of a behaviour on a core whose private caches hold `private_lines` lines, and whose last-level cache holds
    /// `last_lines`.
    pub fn new(behaviour: &Behaviour, private_lines: f64, last_lines: f64) -> Self {
        let Some(of) = &behaviour.sharing else {
            return Self::default();
        };
        let of_all = &of.invalidated_pki;
        let invalidated = |lines: f64| (of_all.total() - of_all.at_least(lines)) / 1000.0;
        Self {
            shared: of.shared,
            touched_before: of.touched_before * behaviour.locality.cold_pki / 1000.0,
            invalidated: invalidated(private_lines),
            invalidated_outside: invalidated(last_lines.max(private_lines)),
        }
    }

    /// True if the behaviour shares nothing.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
