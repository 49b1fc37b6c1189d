//! Processor-specific events outside the table, identified by the string that encodes them (`r01c2`, `uops_retired.slots`,
//! `cpu_core/event=0x2e,umask=0x41/`).
//!
//! An event gets one of a few slots when a formula first names it, and keeps the slot for the life of the process.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::{Event, EventDef, EventOrigin};

/// Slots for processor-specific events, filled in the order in which the events are first named.
static OWN: [OnceLock<EventDef>; Event::OWN.len()] = [const { OnceLock::new() }; Event::OWN.len()];

/// Lock held while a slot is assigned to an event.
static NAMING: Mutex<()> = Mutex::new(());

/// Row of a slot without an event.
static FREE: EventDef = EventDef {
    event: Event::Own0,
    name: "",
    aliases: &[],
    unit: "",
    source: EventOrigin::Processor(&[]),
    prose: "a place for an event of this processor",
};

/// Returns the event row of a slot, given its index.
pub(super) fn def(place: usize) -> &'static EventDef {
    OWN.get(place).and_then(OnceLock::get).unwrap_or(&FREE)
}

/// Returns the row of an event string that was named before; `None` if it was not.
pub(super) fn by_name(name: &str) -> Option<&'static EventDef> {
    let named = OWN.iter().map_while(OnceLock::get);
    named.into_iter().find(|def| def.name == name)
}

/// True if a string encodes an event, and so cannot be a mistyped name of the table. Such a string is a raw code, a PMU with
/// terms, or a vendor's name, which contains a dot. Its meaning on a machine is resolved by the code that counts it.
fn encodes(text: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(in_name)
    };
    let code = text.strip_prefix('r').unwrap_or_default();
    let is_raw = !code.is_empty() && code.bytes().all(|b| b.is_ascii_hexdigit());
    let is_vendors = text.contains('.') && is_name(text);
    let terms = text.strip_suffix('/').and_then(|rest| rest.split_once('/'));
    let has_terms = terms.is_some_and(|(pmu, terms)| {
        let in_terms = |c: char| in_name(c) || matches!(c, '=' | ',');
        is_name(pmu) && !terms.is_empty() && terms.chars().all(in_terms)
    });
    is_raw || is_vendors || has_terms
}

/// Returns the row of the event that a string encodes, and assigns a slot to it if it has none. `None` if the string encodes no
/// event, or if all slots are assigned.
pub(super) fn named(text: &str) -> Option<&'static EventDef> {
    let _naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = by_name(text) {
        return Some(known);
    }
    if !encodes(text) {
        return None;
    }
    let (place, event) = OWN
        .iter()
        .zip(Event::OWN)
        .find(|(place, _)| place.get().is_none())?;
    Some(place.get_or_init(|| EventDef {
        event,
        name: text.to_owned().leak(),
        ..FREE
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_encodes_an_event_has_a_place_and_keeps_it() {
        let raw = Event::named("r01c2").unwrap();
        assert_eq!((raw.def().name, raw.def().is_counted()), ("r01c2", true));
        assert!(raw.is_own() && !Event::Cycles.is_own());
        assert_eq!(Event::named("r01c2"), Some(raw));
        assert_eq!(Event::by_name("r01c2"), Some(raw));
        let vendor = Event::named("uops_retired.slots").unwrap();
        let terms = Event::named("cpu_core/event=0x2e,umask=0x41/").unwrap();
        assert!(raw != vendor && vendor != terms);
        assert_eq!(Event::named("LLC-misses"), Some(Event::LlcMisses));
    }

    #[test]
    fn a_mistyped_name_is_no_event() {
        for text in [
            "instrutions",
            "llc_mises",
            "",
            "r01c2,r02c3",
            "pmc0=0x2e",
            "cpu/",
        ] {
            assert_eq!(Event::named(text), None, "{text}");
        }
    }
}
