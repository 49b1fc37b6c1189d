//! `steer trace`: records a program's instructions and accesses, imports traces of other tools, and describes traces.

use std::fs::File;
use std::io::{BufRead, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use countersteer_cache::trace::{
    self, Header, SCHEMA, Totals, TraceError, TraceFile, TraceFormat, TraceWriter, Trailer,
};
use countersteer_model::profile::Recorded;
use countersteer_profiler::{BlockSink, ProfileOptions, ProgramEnding};
use countersteer_report::number;
use serde::Serialize;

use super::{print, print_json, profile};
use crate::error::{FaultKind, failure};
use crate::{library, recorded};

/// Subcommands of `steer trace`.
#[derive(Debug, clap::Subcommand)]
pub enum TraceArgs {
    /// Run a program and record its instructions, accessed cache lines, mispredicted branches, and profile
    Record(TraceRecord),
    /// Show the contents of a trace
    Info {
        /// Trace file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Import a trace of another tool
    Import(TraceImport),
}

#[derive(Debug, clap::Args)]
pub struct TraceRecord {
    /// Output file; default: PROGRAM.trace
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the trace; default: the program's file name
    #[arg(long)]
    name: Option<String>,
    /// Stop after this many instructions (suffixes K, M, G)
    #[arg(long, value_name = "N", value_parser = profile::count)]
    max_instructions: Option<u64>,
    /// Omit accesses that hit the MRU way of an LRU cache with SETS or more sets; 0 keeps all
    #[arg(long, value_name = "SETS", default_value = "8", value_parser = clap::value_parser!(u32).range(0..=64))]
    filter: u32,
    /// Program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required = true)]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct TraceImport {
    /// Format of the input
    #[arg(long, value_parser = format)]
    format: TraceFormat,
    /// Output file; default: FILE.trace
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the trace; default: the file's name
    #[arg(long)]
    name: Option<String>,
    /// Omit accesses that hit the MRU way of an LRU cache with SETS or more sets; 0 keeps all
    #[arg(long, value_name = "SETS", default_value = "8", value_parser = clap::value_parser!(u32).range(0..=64))]
    filter: u32,
    /// Input file, or - for standard input. Decompress it first: `xz -dc FILE | steer trace import --format champsim -`
    file: PathBuf,
}

fn format(text: &str) -> Result<TraceFormat, String> {
    let known = TraceFormat::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<&str> = TraceFormat::ALL.iter().map(|(name, _)| *name).collect();
        format!("the formats are {}", names.join(", "))
    })
}

pub fn run(args: TraceArgs) -> anyhow::Result<ExitCode> {
    match args {
        TraceArgs::Record(args) => record(args),
        TraceArgs::Info { file, json } => info(&file, json).map(|()| ExitCode::SUCCESS),
        TraceArgs::Import(args) => import(&args).map(|()| ExitCode::SUCCESS),
    }
}

fn create(path: &Path, header: &Header) -> anyhow::Result<TraceWriter<BufWriter<File>>> {
    let shown = path.display().to_string();
    let file = BufWriter::new(crate::output::create(path)?);
    Ok(TraceWriter::new(&shown, file, header)?)
}

/// Writer of a trace file, and the first error that occurred.
struct Writing {
    writer: TraceWriter<BufWriter<File>>,
    failed: Option<TraceError>,
}

fn record(args: TraceRecord) -> anyhow::Result<ExitCode> {
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| recorded::file_name(&args.command[0]));
    let output = args
        .output
        .unwrap_or_else(|| PathBuf::from(format!("{name}.trace")));
    let limit = args
        .max_instructions
        .map_or_else(String::new, |n| format!("--max-instructions {n} "));
    let header = Header {
        schema: SCHEMA.into(),
        name,
        detail: format!("steer trace record {limit}-- {}", args.command.join(" ")),
        filter_sets: args.filter,
        fetches: true,
    };
    let writer = create(&output, &header).inspect_err(|_| discard(&output))?;
    let writing = Arc::new(Mutex::new(Some(Writing {
        writer,
        failed: None,
    })));
    let mut options = ProfileOptions::new(args.command);
    options.name = args.name;
    options.max_instructions = args.max_instructions;
    options.stream = Some((args.filter, sink(&writing)));
    // Without an instruction the file is empty.
    let recording = profile::watched(options).inspect_err(|_| discard(&output))?;
    let code = match recording.ending {
        ProgramEnding::Limit => 0,
        other => other.code(),
    };
    finish(&writing, recording.profile, &output).inspect_err(|_| discard(&output))?;
    Ok(ExitCode::from(code as u8))
}

/// Completes a trace file with its totals and the profile, and prints a description of its contents.
fn finish(
    writing: &Mutex<Option<Writing>>,
    profile: Recorded,
    output: &Path,
) -> anyhow::Result<()> {
    let writing = writing
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(Writing { writer, failed }) = writing else {
        return Err(failure(FaultKind::Internal, "the trace is gone"));
    };
    if let Some(error) = failed {
        return Err(error.into());
    }
    let totals = writer.totals();
    super::profile::say_caveats(&profile.caveats);
    let partial = profile.partial.clone();
    writer.finish(Trailer {
        totals,
        partial: partial.clone(),
        profile: Some(Box::new(profile)),
    })?;
    let bytes = std::fs::metadata(output).map_or(0, |m| m.len());
    let note = partial
        .map(|why| format!(" (partial: {why})"))
        .unwrap_or_default();
    stderr_line!(
        "steer: {} instructions of {} threads, {:.3} bytes each{note}; trace in {}",
        totals.instructions,
        totals.threads,
        bytes as f64 / totals.instructions.max(1) as f64,
        output.display()
    );
    Ok(())
}

fn sink(writing: &Arc<Mutex<Option<Writing>>>) -> BlockSink {
    let writing = Arc::clone(writing);
    Arc::new(Mutex::new(move |head, words: &[u32]| {
        let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writing) = writing.as_mut() else {
            return false;
        };
        if let Err(error) = writing.writer.block(head, words) {
            writing.failed = Some(error);
        }
        writing.failed.is_none()
    }))
}

fn import(args: &TraceImport) -> anyhow::Result<()> {
    let shown = args.file.display().to_string();
    let stem = if shown == "-" {
        "stdin".into()
    } else {
        recorded::file_name(&shown)
    };
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{stem}.trace")));
    let header = Header {
        schema: SCHEMA.into(),
        name: args.name.clone().unwrap_or(stem),
        detail: format!("imported from {shown}"),
        filter_sets: args.filter,
        fetches: true,
    };
    let input = library::stream(&args.file)?;
    let totals = imported(args, input, (&output, &header)).inspect_err(|_| discard(&output))?;
    stderr_line!(
        "steer: {} instructions; trace in {}",
        totals.instructions,
        output.display()
    );
    Ok(())
}

/// Writes the trace that an input describes; returns its totals.
fn imported(
    args: &TraceImport,
    input: Box<dyn BufRead>,
    (output, header): (&Path, &Header),
) -> anyhow::Result<Totals> {
    let shown = args.file.display().to_string();
    let mut writer = create(output, header)?;
    trace::import(&shown, args.format, input, args.filter, &mut writer)?;
    let totals = writer.totals();
    writer.finish(Trailer::default())?;
    Ok(totals)
}

/// Removes a trace that was not completed, because it looks like a complete one. Pipes and devices stay.
fn discard(output: &Path) {
    if std::fs::symlink_metadata(output).is_ok_and(|m| m.is_file()) {
        let _ = std::fs::remove_file(output);
    }
}

#[derive(Serialize)]
struct TraceInfo<'a> {
    header: &'a Header,
    trailer: &'a Trailer,
    bytes: u64,
}

fn info(file: &Path, json: bool) -> anyhow::Result<()> {
    let trace = TraceFile::open(file)?;
    let bytes = std::fs::metadata(file).map_or(0, |m| m.len());
    let (header, trailer) = (trace.header(), trace.trailer());
    if json {
        return print_json(&TraceInfo {
            header,
            trailer,
            bytes,
        });
    }
    let t = &trailer.totals;
    let per = |count: u64| count as f64 / t.instructions.max(1) as f64;
    let filter = match header.filter_sets {
        0 => "none: the trace has every access".to_owned(),
        1 => "repeated accesses to one line are omitted".to_owned(),
        n => format!("hits in the MRU way of LRU caches with {n} or more sets are omitted"),
    };
    let profile = trailer.profile.as_ref().map_or_else(
        || "none: suitable for miss curves and signatures, not for traced simulation".to_owned(),
        |p| {
            format!(
                "{} behaviours in {} segments",
                p.behaviours.len(),
                p.timeline.len()
            )
        },
    );
    let mut text = format!(
        "trace         {}\nmade by       {}\ninstructions  {}\nthreads       {}\nloads         {} ({} per instruction)\n\
         stores        {} ({} per instruction)\nfilter        {filter}\nprofile       {profile}\nblocks        {}\n\
         size          {} bytes, {} per instruction\n",
        header.name,
        header.detail,
        t.instructions,
        t.threads,
        t.loads,
        number(per(t.loads), 3),
        t.stores,
        number(per(t.stores), 3),
        t.blocks,
        bytes,
        number(per(bytes), 3),
    );
    if let Some(why) = &trailer.partial {
        text += &format!("partial       {why}\n");
    }
    print(&text)
}
