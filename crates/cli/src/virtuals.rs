//! Virtual counters of `steer stat`: which were asked for, and what they say at the end of each period.

use std::path::Path;

use countersteer_core::counters::{Owner, Readings};
use countersteer_core::units::Nanos;
use countersteer_host::virtuals::{PROVIDERS, Place, Provider, Value, provider_of};
use countersteer_report::readings::{VirtualValue, Writer};

use crate::error::{Kind, told};

/// The providers of what was asked for.
#[derive(Default)]
pub struct Bank {
    names: Vec<&'static str>,
    providers: Vec<Box<dyn Provider>>,
    values: Vec<Value>,
}

impl Bank {
    /// Opens the providers of these columns, and takes a first reading, from which differences count.
    pub fn open(wanted: &[String]) -> anyhow::Result<Self> {
        let mut bank = Self::default();
        let mut opened: Vec<&str> = Vec::new();
        for name in wanted {
            let Some(def) = provider_of(name) else {
                let known: Vec<&str> = PROVIDERS.iter().flat_map(|p| p.columns).map(|c| c.name).collect();
                return Err(told(
                    Kind::Usage,
                    format!("there is no virtual counter `{name}`; there are {}", known.join(", ")),
                ));
            };
            bank.names.extend(def.columns.iter().map(|c| c.name).filter(|n| n == name));
            if !opened.contains(&def.name) {
                opened.push(def.name);
                let provider = (def.open)(Path::new("/"));
                bank.providers
                    .push(provider.map_err(|why| told(Kind::Missing, format!("`{name}` cannot be read: {why}")))?);
            }
        }
        bank.providers.iter_mut().for_each(|p| p.read(&mut bank.values));
        Ok(bank)
    }

    /// The names of the columns.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Reads everything and writes a line per value; threads that were read are followed until they end.
    pub fn tell<'n>(
        &mut self,
        at: Nanos,
        readings: &Readings,
        writer: &Writer<'_>,
        name: impl Fn(u32) -> &'n str,
        into: &mut String,
    ) {
        self.values.clear();
        for provider in &mut self.providers {
            provider.read(&mut self.values);
            for row in readings.rows() {
                if let Owner::Thread { tid, .. } = row.owner {
                    if row.last { provider.leave(tid) } else { provider.follow(tid) }
                }
            }
        }
        for value in self.values.iter().filter(|v| self.names.contains(&v.column.name)) {
            let (place, tid, cpu) = match &value.place {
                Place::Machine => ("machine", None, None),
                Place::Zone { name, .. } => (&**name, None, None),
                Place::Cpu(cpu) => ("", None, Some(cpu.0)),
                Place::Thread(tid) => (name(*tid), Some(*tid), None),
            };
            let (column, value) = (value.column, value.value);
            writer.value(at, &VirtualValue { name: column.name, unit: column.unit, place, tid, cpu, value }, into);
        }
    }
}
