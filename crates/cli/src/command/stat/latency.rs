//! `steer stat --latency`: run-queue latency of the counted threads.

use std::io::Write;

use countersteer_report::readings::Style;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::waits::Whose;

use super::{Args, RowPer, style};
use crate::waits::{By, Meter, Watch, for_record, json_lines, text};

/// Starts to read the wait times of the counted threads.
pub(super) fn watch(args: &Args) -> anyhow::Result<Watch> {
    let whose = Whose {
        children: !args.command.is_empty(),
        pids: args
            .pid
            .iter()
            .copied()
            .chain(args.tid.iter().filter_map(|tid| PROC.process_of(*tid)))
            .collect(),
        all: args.all,
    };
    Watch::start(Meter::open(&whose, args.counted.bpf)?)
}

/// Prints the wait times. Returns them as JSON text for the record.
pub(super) fn tell(watch: Watch, args: &Args, out: &mut dyn Write) -> anyhow::Result<String> {
    let (meter, mut book) = watch.finish()?;
    if !args.tid.is_empty() {
        book.keep(&args.tid);
    }
    let by = match args.per {
        None | Some(RowPer::Thread) => By::Thread,
        Some(RowPer::Process) => By::Process,
        Some(RowPer::Cpu | RowPer::Total) => By::Total,
    };
    let rows = book.rows(by);
    let remark = meter.remark();
    if style(args) == Style::Json {
        out.write_all(json_lines(&rows, meter.unmeasured.is_none())?.as_bytes())?;
    } else {
        writeln!(out, "\n{}{remark}", text(&rows, by))?;
    }
    out.flush()?;
    for_record(&rows, by, &remark)
}
