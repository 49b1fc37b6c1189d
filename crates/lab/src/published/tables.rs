//! Parsers of public tables of counters.
//!
//! Input: the text of a table from its repository. Output: rows by program. Rows without numbers are omitted and listed with the
//! reason, since an incomplete table is still useful.

use std::collections::BTreeMap;
use std::fmt;

pub(crate) const CODE_MISSES: &str = "L1I.MISSES";

/// Relative error of the counts of one run, used if there is no second run.
pub(crate) const ONE_RUN: f64 = 0.03;

/// Name of a program with the year of its suite, as in `mcf-2006`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SuiteProgram {
    pub name: String,
    pub year: u32,
}

impl fmt::Display for SuiteProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.name, self.year)
    }
}

impl SuiteProgram {
    /// Parses a number and a name in SPEC's form, such as `429.mcf` or `505.mcf_r`. The number determines the suite. `None` for
    /// other text, and for programs of other suites.
    fn of_spec(text: &str) -> Option<Self> {
        let (number, name) = text.split_once('.')?;
        let number: u32 = number.parse().ok()?;
        let year = match number {
            100..400 => 2000,
            400..500 => 2006,
            500..600 => 2017,
            // 998 and 999 only test the random number generator; numbers from 600 on belong to the speed suite.
            _ => return None,
        };
        let name = name.split('.').next().unwrap_or(name);
        let name = name.strip_suffix("_r").unwrap_or(name).to_owned();
        Some(Self { name, year })
    }

    /// Parses a name followed by the last two digits of the year, such as `mcf00` or `sphinx306`. `None` for other text.
    fn of_short(text: &str) -> Option<Self> {
        let (name, year) = text.split_at_checked(text.len().checked_sub(2)?)?;
        let year = 2000 + year.parse::<u32>().ok()?;
        let name = name.to_owned();
        Some(Self { name, year })
    }
}

/// Rows of a table by program, and omitted rows with the reason.
#[derive(Clone, Debug)]
pub(crate) struct ProgramTable<R> {
    pub rows: BTreeMap<SuiteProgram, R>,
    pub left_out: Vec<String>,
}

impl<R> Default for ProgramTable<R> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            left_out: Vec::new(),
        }
    }
}

/// Parses a number, which may have a decimal comma or a trailing percent sign. `None` if the cell is no number or negative.
fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim().trim_matches('"');
    let (cell, scale) = match cell.strip_suffix('%') {
        Some(cell) => (cell, 0.01),
        None => (cell, 1.0),
    };
    let value: f64 = cell.replace(',', ".").parse().ok()?;
    Some(value * scale).filter(|v| v.is_finite() && *v >= 0.0)
}

/// Splits a line at its commas; commas inside quotation marks do not split a cell.
fn cells(line: &str) -> Vec<&str> {
    let mut quoted = false;
    line.split(|c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .collect()
}

/// Parses all cells as numbers; `None` if one of them is no number.
fn numbers(cells: &[&str]) -> Option<Vec<f64>> {
    cells.iter().map(|cell| number(cell)).collect()
}

/// Measurements of a program with one number of ways of the last-level cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WayTable {
    pub cpi: f64,
    /// Accesses to the last-level cache per kilo-instruction, including prefetches.
    pub refs: f64,
    /// Misses of the last-level cache per kilo-instruction, including prefetches.
    pub misses: f64,
    /// Ratio of the bandwidth by the memory controller's counter to that of the misses. `None` if the bandwidth is too low to
    /// compare.
    pub bandwidth_ratio: Option<f64>,
    /// Cycles per instruction in which the core is stalled while a last-level cache miss is outstanding.
    pub stalled: f64,
}

/// Threshold in MB/s, below which the memory controller's counter mostly shows other activity of the machine.
const QUIET_MB_S: f64 = 200.0;

/// Parses PBBCache's table of programs by number of ways.
#[must_use]
pub fn ways(text: &str) -> ProgramTable<BTreeMap<u32, WayTable>> {
    let mut table: ProgramTable<BTreeMap<u32, WayTable>> = ProgramTable::default();
    let mut lines = text.lines();
    let head = cells(lines.next().unwrap_or_default());
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let cells = cells(line);
        let at = |column: &str| {
            let nth = head.iter().position(|h| *h == column)?;
            number(cells.get(nth)?)
        };
        let row = || {
            let ipc = at("ipc").filter(|ipc| *ipc > 0.0)?;
            let by_misses = at("llcm_bandwidth")?;
            Some(WayTable {
                cpi: 1.0 / ipc,
                refs: at("llcrpki")?,
                misses: at("llcmpki")?,
                bandwidth_ratio: Some(at("bandwidth_mbps")? / by_misses)
                    .filter(|_| by_misses > QUIET_MB_S),
                stalled: at("stalls_l3_miss")? / ipc,
            })
        };
        let program = SuiteProgram::of_short(cells.first().unwrap_or(&""));
        match (program, at("NR_WAYS"), row()) {
            (Some(program), Some(ways), Some(row)) => {
                let rows = table.rows.entry(program).or_default();
                rows.insert(ways as u32, row);
            }
            _ => table
                .left_out
                .push(format!("a cell is not a number: `{line}`")),
        }
    }
    table
}

/// Raw events of a run of a program on a Nehalem or a Westmere, per instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    pub instructions: f64,
    /// Counts per instruction, by the event names of perf and of the table.
    rates: BTreeMap<String, f64>,
}

impl Events {
    /// Returns the count of an event per instruction; `None` if the table lacks the event.
    #[must_use]
    pub fn of(&self, event: &str) -> Option<f64> {
        self.rates.get(event).copied()
    }

    /// Returns the count of `all` minus that of `part`, per instruction; at least 0. `None` if the table lacks one of the
    /// events.
    #[must_use]
    pub fn less(&self, all: &str, part: &str) -> Option<f64> {
        Some((self.of(all)? - self.of(part)?).max(0.0))
    }
}

const INSTRUCTIONS: &str = "INST_RETIRED.ANY_P";
/// Threshold: minimum number of instructions of a program. Shorter ones are probes of the measurement tool, or did not complete.
const FEW_INSTRUCTIONS: f64 = 5e9;

/// Parses raw events. The block of a program is its name, then one line per event.
#[must_use]
pub fn events(text: &str) -> ProgramTable<Events> {
    let mut counts: Vec<(String, BTreeMap<String, f64>)> = Vec::new();
    let mut table = ProgramTable::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split('\t').collect();
        match (cells.as_slice(), counts.last_mut()) {
            ([name], _) => counts.push(((*name).to_owned(), BTreeMap::new())),
            ([event, _, count], Some((name, events))) => match number(count) {
                // If a count is repeated, the first one is kept.
                Some(count) => {
                    events.entry((*event).to_owned()).or_insert(count);
                }
                None => {
                    let why = format!("{name}: `{event}` has the count `{count}`");
                    table.left_out.push(why);
                }
            },
            _ => table.left_out.push(format!("no event: `{line}`")),
        }
    }
    for (name, mut events) in counts {
        let instructions = events.get(INSTRUCTIONS).copied().unwrap_or(0.0);
        match SuiteProgram::of_spec(&name) {
            Some(program) if instructions >= FEW_INSTRUCTIONS => {
                events.values_mut().for_each(|count| *count /= instructions);
                let rates = events;
                table.rows.insert(
                    program,
                    Events {
                        instructions,
                        rates,
                    },
                );
            }
            _ => {
                let giga = instructions / 1e9;
                let why = format!("{name}: {giga:.1} billion instructions");
                table.left_out.push(why);
            }
        }
    }
    table
}

/// Measurements of a program by size of the last-level cache: means over its inputs, weighted by instructions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SizeTable {
    pub giga_instructions: f64,
    pub loads: f64,
    pub stores: f64,
    /// Load misses of the L1 per kilo-instruction.
    pub first: f64,
    /// Accesses to the last-level cache per kilo-instruction, without prefetchers.
    pub refs: f64,
    /// Measurements for each size.
    pub points: Vec<SizePoint>,
}

/// Measurements with one size of the last-level cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SizePoint {
    pub size_kib: f64,
    /// Cycles per instruction, with prefetchers.
    pub cpi: f64,
    /// Demand misses per kilo-instruction, with prefetchers.
    pub demanded: f64,
    /// Misses per kilo-instruction, without prefetchers.
    pub misses: f64,
}

/// Texts of the files of one suite, in the table by cache size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeTexts<'a> {
    pub general: &'a str,
    pub prefetch: &'a str,
    pub no_prefetch: &'a str,
    pub by_prefetcher: &'a str,
}

/// Cache sizes of the columns in MB. 1.75 MB is omitted: its values equal those of 3.5 MB, because two ways are the minimum.
const SIZES_MB: [f64; 4] = [3.5, 7.0, 14.0, 19.25];

/// Parses the Skylake-SP characterisation by size of the last-level cache.
#[must_use]
pub fn sizes(texts: SizeTexts<'_>) -> ProgramTable<SizeTable> {
    let mut table = ProgramTable::default();
    let general = inputs(texts.general, 7, &mut table.left_out);
    let prefetch = inputs(texts.prefetch, 10, &mut table.left_out);
    let no_prefetch = inputs(texts.no_prefetch, 10, &mut table.left_out);
    let by_prefetcher = inputs(texts.by_prefetcher, 18, &mut table.left_out);
    let mut sums: BTreeMap<SuiteProgram, SizeTable> = BTreeMap::new();
    for (input, general) in &general {
        let Some(program) = SuiteProgram::of_spec(input) else {
            continue;
        };
        let (Some(on), Some(off), Some(each)) = (
            prefetch.get(input),
            no_prefetch.get(input),
            by_prefetcher.get(input),
        ) else {
            let why = format!("{input}: it is not in all tables");
            table.left_out.push(why);
            continue;
        };
        let sum = sums.entry(program).or_insert_with(|| SizeTable {
            points: vec![SizePoint::default(); SIZES_MB.len()],
            ..SizeTable::default()
        });
        let giga = general[0];
        sum.giga_instructions += giga;
        sum.loads += giga * general[1];
        sum.stores += giga * general[2];
        sum.first += giga * general[3];
        sum.refs += giga * each[6];
        for (nth, point) in sum.points.iter_mut().enumerate() {
            point.cpi += giga * on[1 + nth];
            point.demanded += giga * on[6 + nth];
            point.misses += giga * off[6 + nth];
        }
    }
    table.rows = sums.into_iter().map(|(p, sum)| (p, sum.mean())).collect();
    table
}

impl SizeTable {
    fn mean(mut self) -> Self {
        let n = self.giga_instructions;
        for figure in [
            &mut self.loads,
            &mut self.stores,
            &mut self.first,
            &mut self.refs,
        ] {
            *figure /= n;
        }
        for (point, mb) in self.points.iter_mut().zip(SIZES_MB) {
            *point = SizePoint {
                size_kib: mb * 1024.0,
                cpi: point.cpi / n,
                demanded: point.demanded / n,
                misses: point.misses / n,
            };
        }
        self
    }
}

/// Returns the lines with `count` numbers, by their first cell, the program's input. Other lines are added to `left_out`.
fn inputs(text: &str, count: usize, left_out: &mut Vec<String>) -> BTreeMap<String, Vec<f64>> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells = cells(line);
        let Some((name, rest)) = cells.split_first() else {
            continue;
        };
        if !name.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        match numbers(rest.get(..count).unwrap_or_default()) {
            Some(row) if !row.is_empty() => {
                rows.insert((*name).to_owned(), row);
            }
            _ => left_out.push(format!("fewer than {count} numbers: `{line}`")),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_suite() {
        let name = |p: Option<SuiteProgram>| p.map(|p| p.to_string());
        assert_eq!(
            name(SuiteProgram::of_spec("429.mcf.1")).as_deref(),
            Some("mcf-2006")
        );
        assert_eq!(
            name(SuiteProgram::of_spec("505.mcf_r.1")).as_deref(),
            Some("mcf-2017")
        );
        assert_eq!(
            name(SuiteProgram::of_short("sphinx306")).as_deref(),
            Some("sphinx3-2006")
        );
        assert_eq!(name(SuiteProgram::of_spec("999.specrand")), None);
    }

    #[test]
    fn decimal_commas_and_per_cent_are_numbers_and_holes_are_left_out() {
        assert_eq!(number("\"1,05\""), Some(1.05));
        assert_eq!(number("27%"), Some(0.27));
        assert_eq!(number("NA"), None);
        let head = "BENCH,NR_WAYS,ipc,llcrpki,llcmpki,bandwidth_mbps,llcm_bandwidth,stalls_l3_miss";
        let text = format!("{head}\nmcf00,1,\"0,5\",200,100,1100,1000,0.4\nart00,2,0,1,1,1,1,0\n");
        let table = ways(&text);
        let row = table.rows.values().next().unwrap()[&1];
        assert_eq!((row.cpi, row.stalled), (2.0, 0.8));
        assert_eq!(row.bandwidth_ratio, Some(1.1));
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.left_out.len(), 1, "{:?}", table.left_out);
    }

    #[test]
    fn events_are_rates_and_short_runs_are_left_out() {
        let text = "429.mcf\nL2_RQSTS.MISS\trAA24\t20000000000\nINST_RETIRED.ANY_P\tr00C0\t100000000000\n\
                    998.specrand\nINST_RETIRED.ANY_P\tr00C0\t1000000\n";
        let table = events(text);
        let mcf = table.rows.values().next().unwrap();
        assert_eq!(mcf.of("L2_RQSTS.MISS"), Some(0.2));
        assert_eq!(table.left_out, ["998.specrand: 0.0 billion instructions"]);
    }

    #[test]
    fn inputs_of_a_program_are_weighted_by_their_instructions() {
        let line = |input: &str, n: usize, value: f64| {
            let values = vec![value.to_string(); n].join(",");
            format!("{input},{values}\n")
        };
        let both = |n| line("401.bzip2.1", n, 1.0) + &line("401.bzip2.2", n, 3.0);
        let table = sizes(SizeTexts {
            general: &both(7),
            prefetch: &both(10),
            no_prefetch: &both(10),
            by_prefetcher: &both(18),
        });
        let bzip2 = table.rows.values().next().unwrap();
        assert_eq!(bzip2.giga_instructions, 4.0);
        assert_eq!(bzip2.points[0].cpi, 2.5);
        assert!(table.left_out.is_empty());
    }
}
