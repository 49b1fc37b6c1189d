//! Event strings, the argument of `-e`.
//!
//! Input: one event set as text. Output: [`EventSpec`]s, whose names the host resolves for its machine.
//!
//! ```text
//! instructions,llc_misses:u         names (portable, software, or a vendor's), :u or :k for user or kernel mode only
//! cpu_core/event=0x2e,umask=0x41/   a PMU of sysfs with its terms
//! cpu/mem-loads,ldlat=30/           one of its named events, with terms
//! r412e                             raw: the config of the core's PMU in hexadecimal
//! pmc0,pmc3=0x2e,umask3=0x41        PMCTrack's raw strings: counter 0 as it comes, counter 3 with event and unit mask
//! ```

use super::syntax::{SpecError, SyntaxCursor, number};

/// Event requested by the user, parsed but not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// Text of the event as the user wrote it, which is also the name of its column.
    pub text: String,
    /// Byte offset of the event in the text of its set, for errors of later stages.
    pub offset: usize,
    pub source: EventSource,
    /// Processor modes (user, kernel) in which the event is counted.
    pub space: Space,
}

/// Kind of an event string, with its parsed content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// Name of an event, to be resolved for the machine.
    Named(String),
    /// PMU with terms, as in `cpu/event=0x2e,umask=0x41/`.
    Pmu {
        pmu: String,
        /// Terms between the PMU's slashes.
        terms: Vec<Term>,
    },
    /// Raw config value for the core's PMU, as in `r01c2`.
    Raw(u64),
    /// Counter of a PMCTrack event string.
    Counter(RawCounter),
}

/// Term between the slashes of a PMU's event string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub name: String,
    /// Value of the term; `None` for named events and flags.
    pub value: Option<TermValue>,
    /// Byte offset of the term in the text of its set.
    pub offset: usize,
}

/// Value of a term of a PMU's event string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermValue {
    Number(u64),
    /// Value that is not a number, as in `event=?`.
    Word(String),
}

/// Counter of a PMCTrack event string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawCounter {
    pub counter: u32,
    /// Code of the event; `None` for a fixed-function counter.
    pub event: Option<u64>,
    pub umask: u64,
    pub cmask: u64,
    pub edge: bool,
    pub inv: bool,
    /// Sampling period in events; `None` without sampling.
    pub every: Option<u64>,
}

/// Processor modes (user, kernel) in which an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub user: bool,
    pub kernel: bool,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            user: true,
            kernel: true,
        }
    }
}

impl Space {
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match (self.user, self.kernel) {
            (true, false) => ":u",
            (false, true) => ":k",
            _ => "",
        }
    }
}

/// Parses one event set.
///
/// # Errors
/// Fails if the text has none of the supported forms; the error contains the column.
pub fn parse_set(text: &str) -> Result<Vec<EventSpec>, SpecError> {
    if is_pmctrack(text) {
        return pmctrack(text);
    }
    let mut cursor = SyntaxCursor::new(text);
    let mut events: Vec<EventSpec> = Vec::new();
    loop {
        let event = event(&mut cursor)?;
        if events.iter().any(|e| e.text == event.text) {
            return cursor.error_at(event.offset, format!("`{}` is there twice", event.text));
        }
        events.push(event);
        if cursor.peek().is_none() {
            return Ok(events);
        }
        if !cursor.take(',') {
            return cursor.error("a comma should separate events");
        }
    }
}

const fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn event(cursor: &mut SyntaxCursor<'_>) -> Result<EventSpec, SpecError> {
    let start = cursor.at;
    let name = cursor.run(in_name);
    if name.is_empty() {
        return cursor.error("an event's name should stand here, as in instructions,llc_misses");
    }
    let source = if cursor.take('/') {
        EventSource::Pmu {
            pmu: name.to_owned(),
            terms: terms(cursor)?,
        }
    } else if let Some(config) = name
        .strip_prefix('r')
        .filter(|h| h.len() > 1)
        .and_then(|h| number(&format!("0x{h}")))
    {
        EventSource::Raw(config)
    } else {
        EventSource::Named(name.to_owned())
    };
    let space = if cursor.take(':') {
        space(cursor)?
    } else {
        Space::default()
    };
    Ok(EventSpec {
        text: cursor.text[start..cursor.at].to_owned(),
        offset: start,
        source,
        space,
    })
}

fn terms(cursor: &mut SyntaxCursor<'_>) -> Result<Vec<Term>, SpecError> {
    let mut terms = Vec::new();
    loop {
        let offset = cursor.at;
        let name = cursor.run(in_name);
        if name.is_empty() {
            return cursor.error("a term should stand here, as in cpu/event=0x2e,umask=0x41/");
        }
        let value = if cursor.take('=') {
            Some(term_value(cursor)?)
        } else {
            None
        };
        terms.push(Term {
            name: name.to_owned(),
            value,
            offset,
        });
        if cursor.take('/') {
            return Ok(terms);
        }
        if !cursor.take(',') {
            return cursor.error("the terms should end with a slash, as in cpu/event=0x2e/");
        }
    }
}

fn term_value(cursor: &mut SyntaxCursor<'_>) -> Result<TermValue, SpecError> {
    let start = cursor.at;
    let value = cursor.run(|c| in_name(c) || c == '?');
    match number(value) {
        Some(n) => Ok(TermValue::Number(n)),
        None if value.is_empty() => cursor.error("a value should stand here, as in umask=0x41"),
        None if value.starts_with(|c: char| c.is_ascii_digit()) => {
            cursor.error_at(start, format!("`{value}` is no number of at most 64 bits"))
        }
        None => Ok(TermValue::Word(value.to_owned())),
    }
}

fn space(cursor: &mut SyntaxCursor<'_>) -> Result<Space, SpecError> {
    let start = cursor.at;
    match cursor.run(|c| c.is_ascii_alphanumeric()) {
        "u" => Ok(Space {
            user: true,
            kernel: false,
        }),
        "k" => Ok(Space {
            user: false,
            kernel: true,
        }),
        "uk" | "ku" => Ok(Space::default()),
        other => cursor.error_at(
            start,
            format!("`{other}` is no mode; u (user) and k (kernel) are"),
        ),
    }
}

/// Keys of PMCTrack's raw event strings. Each key is followed by the number of a counter.
const KEYS: [&str; 7] = ["pmc", "umask", "cmask", "edge", "inv", "ebs", "usr"];

fn split_key(text: &str) -> Option<(&'static str, u32)> {
    KEYS.iter().find_map(|key| {
        let digits = text.strip_prefix(key)?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits
            .parse()
            .ok()
            .filter(|n| plain && *n < 64)
            .map(|n| (*key, n))
    })
}

fn is_pmctrack(text: &str) -> bool {
    let first = text.split([',', '=']).next().unwrap_or_default();
    matches!(split_key(first), Some(("pmc", _)))
}

fn pmctrack(text: &str) -> Result<Vec<EventSpec>, SpecError> {
    let mut events: Vec<EventSpec> = Vec::new();
    let mut offset = 0;
    for item in text.split(',') {
        let (key, value) = item
            .split_once('=')
            .map_or((item, None), |(k, v)| (k, Some(v)));
        let Some((kind, counter)) = split_key(key) else {
            let hint = "is neither pmc, umask, cmask, edge, inv nor ebs with a counter's number";
            return Err(SpecError::new(text, offset, format!("`{key}` {hint}")));
        };
        let after = offset + key.len() + 1;
        let value = value.map(|v| {
            number(v).ok_or_else(|| SpecError::new(text, after, format!("`{v}` is no number")))
        });
        pmctrack_item(
            text,
            offset,
            (kind, counter, value.transpose()?),
            &mut events,
        )?;
        offset += item.len() + 1;
    }
    Ok(events)
}

fn pmctrack_item(
    text: &str,
    offset: usize,
    (kind, counter, value): (&str, u32, Option<u64>),
    events: &mut Vec<EventSpec>,
) -> Result<(), SpecError> {
    let known = events.iter_mut().find_map(|e| match &mut e.source {
        EventSource::Counter(raw) if raw.counter == counter => Some((raw, &mut e.space)),
        _ => None,
    });
    if kind == "pmc" {
        if known.is_some() {
            return Err(SpecError::new(
                text,
                offset,
                format!("pmc{counter} is there twice"),
            ));
        }
        let source = EventSource::Counter(RawCounter {
            counter,
            event: value,
            ..RawCounter::default()
        });
        events.push(EventSpec {
            text: format!("pmc{counter}"),
            offset,
            source,
            space: Space::default(),
        });
        return Ok(());
    }
    let Some((raw, space)) = known else {
        return Err(SpecError::new(
            text,
            offset,
            format!("name pmc{counter} before {kind}{counter}"),
        ));
    };
    match (kind, value) {
        ("usr", _) => {
            *space = Space {
                user: true,
                kernel: value == Some(0),
            }
        }
        ("ebs", Some(n)) if n > 0 => raw.every = Some(n),
        ("edge", _) => raw.edge = value != Some(0),
        ("inv", _) => raw.inv = value != Some(0),
        ("umask", Some(n)) => raw.umask = n,
        ("cmask", Some(n)) => raw.cmask = n,
        _ => {
            return Err(SpecError::new(
                text,
                offset,
                format!("{kind}{counter} needs a number, as in {kind}{counter}=1"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &[&str] = &[
        "instructions",
        "task-clock,context_switches:u",
        "cpu_core/event=0x2e,umask=0x41/,r412e,cycles:k",
        "cpu/mem-loads,ldlat=30/u2,MEM_LOAD_RETIRED.L3_MISS",
        "pmc0,pmc3=0x2e,umask3=0x41,cmask3=2,edge3,inv3=0,ebs3=1000,usr3=1",
        "power/energy-pkg/",
    ];

    #[test]
    fn names_pmus_and_raw_codes_stand_side_by_side() {
        let set = parse_set(
            "instructions:u,cpu_core/event=0x2e,umask=65,edge/k2,r412e"
                .split("k2")
                .next()
                .unwrap(),
        )
        .unwrap();
        assert_eq!(set[0].source, EventSource::Named("instructions".into()));
        assert_eq!(
            set[0].space,
            Space {
                user: true,
                kernel: false
            }
        );
        let EventSource::Pmu { pmu, terms } = &set[1].source else {
            panic!("{:?}", set[1])
        };
        assert_eq!((pmu.as_str(), terms.len()), ("cpu_core", 3));
        assert_eq!(terms[1].value, Some(TermValue::Number(65)));
        assert_eq!(set[1].text, "cpu_core/event=0x2e,umask=65,edge/");
        assert_eq!(
            parse_set("r412e").unwrap()[0].source,
            EventSource::Raw(0x412e)
        );
        assert_eq!(
            parse_set("ref_cycles").unwrap()[0].source,
            EventSource::Named("ref_cycles".into())
        );
    }

    #[test]
    fn pmctracks_strings_mean_what_they_mean_there() {
        let set = parse_set("pmc0,pmc3=0x2e,umask3=0x41").unwrap();
        let third = RawCounter {
            counter: 3,
            event: Some(0x2e),
            umask: 0x41,
            ..RawCounter::default()
        };
        assert_eq!(set[0].source, EventSource::Counter(RawCounter::default()));
        assert_eq!(
            (set[1].text.as_str(), &set[1].source),
            ("pmc3", &EventSource::Counter(third))
        );
    }

    #[test]
    fn errors_point_at_the_column() {
        let column = |text: &str| parse_set(text).unwrap_err().column();
        assert_eq!(column("instructions,,cycles"), 14);
        assert_eq!(column("instructions:x"), 14);
        assert_eq!(column("cpu/event=/"), 11);
        assert_eq!(column("cpu/event=0xzz/"), 11);
        assert_eq!(column("cpu/event=1"), 12);
        assert_eq!(column("cycles cycles"), 7);
        assert_eq!(column("cycles,cycles"), 8);
        assert_eq!(column("pmc0,umask1=3"), 6);
        assert_eq!(column("pmc0,umask0"), 6);
        assert_eq!(column("pmc0,mask0=1"), 6);
        assert_eq!(column("pmc0,pmc1=0xg"), 11);
        assert_eq!(column(""), 1);
    }

    proptest! {
        #[test]
        fn no_string_upsets_the_parser(text in "\\PC{0,60}") {
            let _ = parse_set(&text).map_err(|e| e.to_string());
        }

        #[test]
        fn no_mutation_upsets_the_parser(nth in 0..VALID.len(), at in any::<prop::sample::Index>(), with in "\\PC{0,3}", cut in 0..4usize) {
            let chars: Vec<char> = VALID[nth].chars().collect();
            let at = at.index(chars.len());
            let text: String =
                chars[..at].iter().copied().chain(with.chars()).chain(chars.iter().skip(at + cut).copied()).collect();
            match parse_set(&text) {
                Ok(events) => prop_assert!(!events.is_empty()),
                Err(error) => prop_assert!(error.offset <= text.len() && !error.to_string().is_empty()),
            }
        }

        #[test]
        fn what_was_parsed_is_parsed_again_to_the_same(nth in 0..VALID.len()) {
            // The fourth string is only a base for mutations: a mode is no number.
            if let Ok(events) = parse_set(VALID[nth]) {
                for event in events.iter().filter(|e| !matches!(e.source, EventSource::Counter(_))) {
                    prop_assert_eq!(&parse_set(&event.text).unwrap()[0].source, &event.source);
                }
            }
        }
    }
}
