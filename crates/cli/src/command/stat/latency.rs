//! `steer stat --latency`: run-queue latency of the counted threads.

use std::io::Write;

use countersteer_report::readings::Style;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::waits::Whose;

use super::{RowPer, StatArgs, style};
use crate::waits::{LatencySource, WaitGrouping, WaitWatch, for_record, json_lines, text};

/// Starts to read the wait times of the counted threads.
pub(super) fn watch(args: &StatArgs) -> anyhow::Result<WaitWatch> {
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
    WaitWatch::start(LatencySource::open(&whose, args.counted.bpf)?)
}

/// Prints the wait times. Returns them as JSON text for the record.
pub(super) fn tell(
    watch: WaitWatch,
    args: &StatArgs,
    out: &mut dyn Write,
) -> anyhow::Result<String> {
    let (latency, book) = watch.finish()?;
    let by = match args.per {
        None | Some(RowPer::Thread) => WaitGrouping::Thread,
        Some(RowPer::Process) => WaitGrouping::Process,
        Some(RowPer::Cpu | RowPer::Total) => WaitGrouping::Total,
    };
    let only = Some(args.tid.as_slice()).filter(|tids| !tids.is_empty());
    let rows = book.rows(by, only);
    let remark = latency.remark();
    if style(args) == Style::Json {
        out.write_all(json_lines(&rows, latency.unmeasured.is_none())?.as_bytes())?;
    } else {
        writeln!(out, "\n{}{remark}", text(&rows, by))?;
    }
    out.flush()?;
    Ok(for_record(&rows, by, &remark)?)
}
