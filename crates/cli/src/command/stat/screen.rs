//! Output of `steer stat` on a terminal or to a file, and the messages at the end.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;

use countersteer_counters::{CoreTypes, CountingSummary, Tick};
use countersteer_model::counters::{Fold, Owner, Per, Samples};
use countersteer_model::units::Nanos;
use countersteer_report::readings::{ReadingOptions, Style, Writer};

use super::{StatArgs, style};
use crate::counted::CountedMetrics;
use crate::live_table::LiveTable;
use crate::output::NamedFile;
use crate::virtuals::{Bank, RunTotals};

/// Writer of counted rows to a terminal or file.
pub(super) struct RowScreen<'a> {
    writer: Writer<'a>,
    fold: Fold,
    /// Table that is redrawn in place, with the sums over the run; `None` if rows are printed one after another.
    live: Option<StatTable>,
    /// True if each sample is printed separately, not added to other samples.
    single: bool,
    /// True after the first row with counts.
    seen: bool,
    text: Vec<u8>,
    failed: Option<std::io::Error>,
}

impl<'a> RowScreen<'a> {
    pub(super) fn new(
        args: &StatArgs,
        per: Per,
        counted: &'a CountedMetrics,
        core_types: &'a CoreTypes,
        names: &'a [&'a str],
    ) -> Self {
        // Counts are printed next to the metrics if -e or a derived virtual counter of -v requested them.
        let own_events =
            !args.counted.events.is_empty() || counted.sets.len() > args.counted.metrics.len();
        let writer = Writer::new(ReadingOptions {
            style: style(args),
            plan: &counted.plan,
            metrics: &counted.metrics,
            only_metrics: !own_events && !counted.metrics.is_empty(),
            core_types: &core_types.names,
            scale: args.scale,
            per,
            virtuals: names,
            room: room(args),
        });
        Self {
            writer,
            fold: Fold::new(per),
            live: is_live(args).then(|| StatTable::new(per, counted)),
            single: counted.every.is_some(),
            seen: false,
            text: Vec::new(),
            failed: None,
        }
    }

    /// Prints the final messages, and returns an earlier write error.
    pub(super) fn end(
        &mut self,
        summary: &CountingSummary,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if self.writer.style() == Style::Json {
            writeln!(out, "{}", end_line(summary))?;
        }
        out.flush()?;
        if self.writer.style() == Style::Table
            && let Some(times) = times(summary)
        {
            stderr_line!("{times}");
        }
        if !self.seen {
            stderr_line!("steer: no selected thread ran in this time, so there is nothing to show");
        }
        warn(summary);
        Ok(())
    }

    pub(super) fn show(
        &mut self,
        tick: &Tick<'_>,
        bank: &Bank,
        out: &mut dyn Write,
    ) -> ControlFlow<()> {
        self.text.clear();
        if tick.number == 0 {
            self.writer.since(tick.origin);
        }
        if tick.number == 0 || self.live.is_some() {
            self.writer.head(&mut self.text);
        }
        let rows: &Samples = if self.single {
            tick.readings
        } else {
            self.fold.fold(tick.readings)
        };
        self.seen |= !rows.rows().is_empty();
        self.writer
            .lines(rows, |id| tick.name(id), &*bank.outside(), &mut self.text);
        bank.each(
            |id| tick.name(id),
            |_, value| self.writer.value(tick.at, value, &mut self.text),
        );
        if let Some(live) = &mut self.live {
            live.virtuals.add(rows, bank);
            self.text = live
                .frame(tick, &self.writer, &String::from_utf8_lossy(&self.text))
                .into_bytes();
        }
        match out.write_all(&self.text).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// Live table on the terminal: it shows the last interval, and at the end the whole run.
struct StatTable {
    table: LiveTable,
    whole: Fold,
    virtuals: RunTotals,
    /// Names of sampled threads, with TIDs as keys.
    names: HashMap<u32, String>,
}

impl StatTable {
    fn new(per: Per, counted: &CountedMetrics) -> Self {
        let table = LiveTable::default();
        let names = HashMap::new();
        Self {
            table,
            whole: Fold::new(per),
            virtuals: RunTotals::new(counted),
            names,
        }
    }

    fn frame(&mut self, tick: &Tick<'_>, writer: &Writer<'_>, text: &str) -> String {
        self.whole.add(tick.readings);
        for row in tick.readings.rows() {
            if let Owner::Thread { pid, tid } = row.owner {
                for id in [pid, tid] {
                    self.names.insert(id, tick.name(id).to_owned());
                }
            }
        }
        if !tick.last {
            return self.table.frame(text);
        }
        let mut text = Vec::new();
        writer.head(&mut text);
        let name = |id: u32| self.names.get(&id).map_or("", String::as_str);
        writer.lines(
            self.whole.sums(),
            name,
            &|name, row| self.virtuals.of(name, row),
            &mut text,
        );
        self.virtuals
            .each(name, |_, value| writer.value(tick.at, value, &mut text));
        self.table.last(&String::from_utf8_lossy(&text))
    }
}

/// Returns true if intervals are shown in a live table: rows go to a terminal, and `--no-live` is not given.
fn is_live(args: &StatArgs) -> bool {
    let watched = match stream(args) {
        RowStream::Out => std::io::stdout().is_terminal(),
        RowStream::Error => std::io::stderr().is_terminal(),
        RowStream::File => false,
    };
    let wanted = args.interval.is_some() && style(args) == Style::Table && !args.no_live;
    wanted && watched && LiveTable::possible()
}

/// Returns the maximum number of characters in a row: `COLUMNS`, or the width of the terminal; `None` for a file.
fn room(args: &StatArgs) -> Option<usize> {
    let seen = match stream(args) {
        RowStream::Out => std::io::stdout().is_terminal(),
        RowStream::Error => std::io::stderr().is_terminal(),
        RowStream::File => return None,
    };
    let asked = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    // Asked only on a terminal, because otherwise the query starts an external program.
    let size = || seen.then(|| ratatui::crossterm::terminal::size().ok())?;
    let columns = asked.or_else(|| Some(usize::from(size()?.0)));
    columns.filter(|columns| *columns > 0)
}

/// Destination of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowStream {
    Out,
    /// Standard error: destination of tables if a program is started, because that program uses standard output.
    Error,
    File,
}

const fn stream(args: &StatArgs) -> RowStream {
    match (&args.to, style(args)) {
        (Some(_), _) => RowStream::File,
        (None, Style::Table) if !args.command.is_empty() => RowStream::Error,
        _ => RowStream::Out,
    }
}

/// Opens the destination of the rows.
pub(super) fn output(args: &StatArgs) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = &args.to else {
        return Ok(match stream(args) {
            // stderr has no buffer of its own, and would be written to in parts of lines.
            RowStream::Error => Box::new(std::io::LineWriter::new(std::io::stderr())),
            _ => Box::new(std::io::stdout().lock()),
        });
    };
    Ok(Box::new(std::io::BufWriter::new(NamedFile::create(path)?)))
}

/// Formats the elapsed, user and system time of the started program, as `time` does; `None` if no program was started.
fn times(summary: &CountingSummary) -> Option<String> {
    summary.ending?;
    let seconds = Nanos::as_secs_f64;
    let (elapsed, user, system) = (
        seconds(summary.elapsed),
        seconds(summary.user),
        seconds(summary.system),
    );
    let used = (user + system) / elapsed.max(1e-9);
    Some(format!(
        "{elapsed:.3} s elapsed, {user:.3} s user, {system:.3} s sys; {used:.2} CPUs used"
    ))
}

fn end_line(summary: &CountingSummary) -> serde_json::Value {
    serde_json::json!({
        "kind": "end",
        "elapsed_s": summary.elapsed.as_secs_f64(),
        "user_s": summary.ending.map(|_| summary.user.as_secs_f64()),
        "system_s": summary.ending.map(|_| summary.system.as_secs_f64()),
        "exit_code": summary.ending.map(|e| e.code()),
        "threads_born": summary.forked,
        "records_lost": summary.lost,
        "user_only": summary.user_only,
    })
}

/// Prints warnings if the counts are incomplete, for example if only user mode was counted.
pub(super) fn warn(summary: &CountingSummary) {
    if summary.user_only {
        stderr_line!(
            "steer: only user mode was counted, because kernel.perf_event_paranoid permits only that"
        );
    }
    if summary.lost > 0 {
        let lost = summary.lost;
        stderr_line!(
            "steer: {lost} records were lost; their counts are in the row (rest), totals are correct"
        );
    }
    if summary.partial > 0 {
        let n = summary.partial;
        stderr_line!(
            "steer: the kernel reported {n} final counts incompletely; the missing part is in the row (rest)"
        );
    }
}
