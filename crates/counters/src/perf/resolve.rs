//! Encoding of event strings for the PMUs of a machine.
//!
//! Input: an [`EventSpec`] and the machine's [`Pmus`]. Output: a [`Resolved`] event, with its encoding on each PMU that has
//! it. A portable name is encoded for every core PMU. Its config has the PMU's type in the upper half, which the kernel
//! evaluates.

use countersteer_model::counters::{
    EventSource, EventSpec, PlannedEvent, RawCounter, Space, SpecError, Term, TermValue,
};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::events::{EVENTS, Event, EventDef, EventOrigin};
use countersteer_model::suggestion::suggestion;
use countersteer_model::units::CpuId;

use super::pmu::{PmuFolder, Pmus, parse};

/// Encoding of an event for one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    pub pmu: String,
    /// CPUs on which the event can be counted; `None` for all CPUs.
    pub cpus: Option<CpuSet>,
    /// Type of the PMU.
    pub kind: u32,
    /// Config words of the event.
    pub config: [u64; 4],
    /// True if the kernel counts the event itself, without hardware.
    pub software: bool,
    /// True if the event belongs to a package or the machine, not to a core.
    pub system: bool,
}

/// Event with its encodings on all PMUs that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub planned: PlannedEvent,
    pub encodings: Vec<Encoding>,
    /// Modes (user, kernel) in which the event counts.
    pub space: Space,
    /// True if the event happens in the kernel only, so that counting user mode would show zero.
    pub in_kernel: bool,
    /// Number of events per sample; `None` if the event string has none.
    pub every: Option<u64>,
}

/// Core types of a machine, as its PMUs distinguish them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreTypes {
    /// Name of each core type: that of its PMU, or `cpu` if all cores are alike.
    pub names: Vec<String>,
    /// Index of the core type of each CPU.
    pub by_cpu: Vec<u32>,
}

impl CoreTypes {
    /// Returns the core types of a machine.
    #[must_use]
    pub fn of(pmus: &Pmus) -> Self {
        let cores: Vec<&PmuFolder> = pmus
            .cores()
            .into_iter()
            .filter(|p| p.cpus.is_some())
            .collect();
        let count = pmus.online.iter().last().map_or(0, |c| c.index() + 1);
        if cores.len() < 2 {
            let name = cores.first().map_or("cpu", |p| p.name.as_str());
            return Self {
                names: vec![name.into()],
                by_cpu: vec![0; count],
            };
        }
        let row = |cpu| {
            cores
                .iter()
                .position(|p| p.covers(CpuId(cpu)))
                .unwrap_or_default() as u32
        };
        Self {
            names: cores.iter().map(|p| p.name.clone()).collect(),
            by_cpu: (0..count as u32).map(row).collect(),
        }
    }
}

impl Resolved {
    /// Returns the encoding on a CPU; `None` if the event does not count there.
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> Option<&Encoding> {
        self.encodings
            .iter()
            .find(|e| e.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)))
    }
}

/// Resolves a set of events on this machine.
///
/// # Errors
/// Fails for names, PMUs and terms that the machine does not have. The error contains their column in `text`.
pub fn resolve(text: &str, specs: &[EventSpec], pmus: &Pmus) -> Result<Vec<Resolved>, SpecError> {
    let resolver = Resolver { text, pmus };
    specs.iter().map(|spec| resolver.event(spec)).collect()
}

struct Resolver<'a> {
    text: &'a str,
    pmus: &'a Pmus,
}

impl Resolver<'_> {
    fn error<T>(&self, offset: usize, message: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.text, offset, message))
    }

    fn event(&self, spec: &EventSpec) -> Result<Resolved, SpecError> {
        let mut found = self.encoded(spec)?;
        if found.planned.event.is_none() {
            // Formulas refer to events of this processor by their encoding.
            found.planned.event = Event::by_name(&spec.text).filter(|event| event.is_own());
        }
        Ok(found)
    }

    fn encoded(&self, spec: &EventSpec) -> Result<Resolved, SpecError> {
        match &spec.source {
            EventSource::Named(name) => self.named(spec, name),
            EventSource::Pmu { pmu, terms } => self.on_pmu(spec, pmu, terms),
            EventSource::Raw(config) => {
                let encode = |pmu: &PmuFolder| Ok([*config, 0, 0, 0]).map(|c| encoding(pmu, c));
                self.plain(
                    spec,
                    self.core_pmus(spec)?
                        .into_iter()
                        .map(encode)
                        .collect::<Result<_, SpecError>>()?,
                )
            }
            EventSource::Counter(raw) => self.counter(spec, *raw),
        }
    }

    fn named(&self, spec: &EventSpec, name: &str) -> Result<Resolved, SpecError> {
        let of_table = |row: &&EventDef| row.is_counted() && !row.event.is_own();
        let Some(row) = EventDef::by_name(name).filter(of_table) else {
            return self.of_some_pmu(spec, name);
        };
        if !row.is_software() {
            self.core_pmus(spec)?;
        }
        let encodings = encodings_of(row, self.pmus);
        if encodings.is_empty() {
            return self.error(spec.offset, self.unknown(name));
        }
        let name = format!("{}{}", row.name, spec.space.suffix());
        let planned = PlannedEvent {
            name,
            unit: row.unit.into(),
            scale: 1.0,
            event: Some(row.event),
        };
        Ok(Resolved {
            planned,
            encodings,
            space: spec.space,
            in_kernel: row.is_in_kernel(),
            every: None,
        })
    }

    /// Resolves a plain name that sysfs lists for at least one PMU, such as `mem-loads`.
    fn of_some_pmu(&self, spec: &EventSpec, name: &str) -> Result<Resolved, SpecError> {
        let term = [Term {
            name: name.to_owned(),
            value: None,
            offset: spec.offset,
        }];
        let mut found: Option<Resolved> = None;
        for pmu in self.pmus.list.iter().filter(|p| p.event(name).is_some()) {
            let one = self.on_pmu(spec, &pmu.name, &term)?;
            match &mut found {
                Some(known) => known.encodings.extend(one.encodings),
                None => found = Some(one),
            }
        }
        found.map_or_else(|| self.error(spec.offset, self.unknown(name)), Ok)
    }

    fn unknown(&self, name: &str) -> String {
        match EventDef::by_name(name).map(|row| row.source) {
            Some(EventOrigin::Processor(known)) if !known.is_empty() => {
                return format!(
                    "no code for `{name}` on this processor is known; name the event that it has instead"
                );
            }
            Some(EventOrigin::Virtual { counter, .. }) => {
                return format!("`{name}` is no counter; it is read by -v {counter}");
            }
            Some(EventOrigin::Program | EventOrigin::Simulator) => {
                return format!("`{name}` is no counter of this machine");
            }
            Some(EventOrigin::Kernel { .. } | EventOrigin::Processor(_)) | None => {}
        }
        let counted = EVENTS.iter().filter(|r| r.is_counted());
        let hint = suggestion(name, counted.map(|r| r.name));
        format!("`{name}` is no event of this machine (`steer events` lists them){hint}")
    }

    fn on_pmu(&self, spec: &EventSpec, name: &str, terms: &[Term]) -> Result<Resolved, SpecError> {
        let Some(pmu) = self.pmus.named(name) else {
            let known: Vec<&str> = self.pmus.list.iter().map(|p| p.name.as_str()).collect();
            return self.error(
                spec.offset,
                format!(
                    "this machine has no PMU `{name}`; it has {}",
                    known.join(", ")
                ),
            );
        };
        let mut config = [0; 4];
        let mut event = None;
        for term in terms {
            if let (Some(known), None) = (pmu.event(&term.name), &term.value) {
                self.named_terms(pmu, term, known, terms, &mut config)?;
                event = Some(known);
            } else {
                self.term(pmu, term, &mut config)?;
            }
        }
        let mut resolved = self.plain(spec, vec![encoding(pmu, config)])?;
        resolved.planned.scale = event.and_then(|e| e.scale).unwrap_or(1.0);
        resolved.planned.unit = event.and_then(|e| e.unit.clone()).unwrap_or_default();
        Ok(resolved)
    }

    /// Puts the terms of a named event into the config words; the user's terms take precedence.
    fn named_terms(
        &self,
        pmu: &PmuFolder,
        at: &Term,
        event: &crate::PmuEvent,
        given: &[Term],
        config: &mut [u64; 4],
    ) -> Result<(), SpecError> {
        for (name, value) in &event.terms {
            if given.iter().any(|t| t.name == *name && t.value.is_some()) {
                continue;
            }
            let value = match value.as_deref() {
                Some("?") => {
                    return self.error(at.offset, format!("`{}` needs {name}=VALUE too", at.name));
                }
                Some(text) => Some(TermValue::Number(parse(text).unwrap_or(0))),
                None => None,
            };
            self.term(
                pmu,
                &Term {
                    name: name.clone(),
                    value,
                    offset: at.offset,
                },
                config,
            )?;
        }
        Ok(())
    }

    fn term(&self, pmu: &PmuFolder, term: &Term, config: &mut [u64; 4]) -> Result<(), SpecError> {
        let word = |name: &str| {
            name.strip_prefix("config")
                .map(|n| if n.is_empty() { "0" } else { n }.parse())
        };
        let value = match &term.value {
            None => 1,
            Some(TermValue::Number(n)) => *n,
            Some(TermValue::Word(w)) => {
                return self.error(term.offset, format!("{}: `{w}` is no number", term.name));
            }
        };
        if let Some(Ok(word @ 0..=3usize)) = word(&term.name) {
            config[word] |= value;
            return Ok(());
        }
        let Some(format) = pmu.format(&term.name) else {
            let known: Vec<&str> = pmu
                .terms()
                .chain(pmu.events.keys().map(String::as_str))
                .take(40)
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return self.error(
                term.offset,
                format!(
                    "`{}` is no term of {}, which has: {known}",
                    term.name, pmu.name
                ),
            );
        };
        let fits = format.place(value, config);
        fits.or_else(|most| {
            self.error(
                term.offset,
                format!("{}={value:#x} is more than {most:#x}", term.name),
            )
        })
    }

    /// Resolves a counter of a PMCTrack string, whose event and masks are put into the bits that the PMU declares.
    fn counter(&self, spec: &EventSpec, raw: RawCounter) -> Result<Resolved, SpecError> {
        let mut encodings = Vec::new();
        for pmu in self.core_pmus(spec)? {
            let Some(event) = raw.event else {
                // Without an event, it is a fixed counter. On Intel processors the first three count instructions, cycles
                // and reference cycles.
                let Some(config) = [1, 0, 9].get(raw.counter as usize) else {
                    return self.error(
                        spec.offset,
                        format!("pmc{} needs an event, as in pmc{0}=0x2e", raw.counter),
                    );
                };
                let kind = super::sys::abi::PERF_TYPE_HARDWARE;
                encodings.push(Encoding {
                    kind,
                    ..encoding(pmu, [*config, 0, 0, 0])
                });
                continue;
            };
            let mut config = [0; 4];
            let flags = [u64::from(raw.edge), u64::from(raw.inv)];
            let names = ["event", "umask", "cmask", "edge", "inv"];
            for (name, value) in names
                .into_iter()
                .zip([event, raw.umask, raw.cmask, flags[0], flags[1]])
            {
                if value > 0 {
                    let term = Term {
                        name: name.into(),
                        value: Some(TermValue::Number(value)),
                        offset: spec.offset,
                    };
                    self.term(pmu, &term, &mut config)?;
                }
            }
            encodings.push(encoding(pmu, config));
        }
        self.plain(spec, encodings).map(|resolved| Resolved {
            every: raw.every,
            ..resolved
        })
    }

    fn core_pmus(&self, spec: &EventSpec) -> Result<Vec<&PmuFolder>, SpecError> {
        let cores = self.pmus.cores();
        if !cores.is_empty() {
            return Ok(cores);
        }
        let software: Vec<&str> = EVENTS
            .iter()
            .filter(|r| r.is_software())
            .map(|r| r.name)
            .collect();
        let why = "this machine has no hardware counters (a virtual machine without a PMU?)";
        let message = format!(
            "{why}, so `{}` cannot be counted; what can: {}",
            spec.text,
            software.join(", ")
        );
        Err(SpecError {
            is_lacking: true,
            ..SpecError::new(self.text, spec.offset, message)
        })
    }

    #[allow(clippy::unnecessary_wraps, reason = "the end of a chain of results")]
    fn plain(&self, spec: &EventSpec, encodings: Vec<Encoding>) -> Result<Resolved, SpecError> {
        let planned = PlannedEvent {
            name: spec.text.clone(),
            unit: String::new(),
            scale: 1.0,
            event: None,
        };
        Ok(Resolved {
            planned,
            encodings,
            space: spec.space,
            in_kernel: false,
            every: None,
        })
    }
}

/// Returns the encodings of an event of the event table on this machine: one per core PMU that has it, or one of the kernel
/// itself.
pub(crate) fn encodings_of(event: &EventDef, pmus: &Pmus) -> Vec<Encoding> {
    let cores = pmus.cores();
    match event.source {
        EventOrigin::Kernel { kind, config, .. } if event.is_software() => vec![Encoding {
            pmu: "software".into(),
            cpus: None,
            kind,
            config: [config, 0, 0, 0],
            software: true,
            system: false,
        }],
        EventOrigin::Kernel { kind, config, .. } => {
            // The upper half of the config selects the PMU. It is needed, and evaluated by the kernel, if there are several
            // core PMUs.
            let several = cores.len() > 1;
            let extended = |pmu: &PmuFolder| {
                if several {
                    config | u64::from(pmu.kind) << 32
                } else {
                    config
                }
            };
            let of_pmu = |pmu: &&PmuFolder| Encoding {
                kind,
                ..encoding(pmu, [extended(pmu), 0, 0, 0])
            };
            cores.iter().map(of_pmu).collect()
        }
        EventOrigin::Processor(known) => {
            let config = |pmu: &PmuFolder| known.iter().find_map(|event| pmu.config(event));
            let of_pmu = |pmu: &&PmuFolder| Some(encoding(pmu, config(pmu)?));
            cores.iter().filter_map(of_pmu).collect()
        }
        EventOrigin::Virtual { .. } | EventOrigin::Program | EventOrigin::Simulator => Vec::new(),
    }
}

fn encoding(pmu: &PmuFolder, config: [u64; 4]) -> Encoding {
    let cpus = pmu.cpus.clone().or_else(|| pmu.mask.clone());
    let software = matches!(pmu.name.as_str(), "software");
    let system = pmu.mask.is_some();
    Encoding {
        pmu: pmu.name.clone(),
        cpus,
        kind: pmu.kind,
        config,
        software,
        system,
    }
}
