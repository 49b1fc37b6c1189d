//! `steer mrc`: cache misses by cache size, from a profile, a trace, or a list of addresses.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_cache::curve::{AccessSide, Curve};
use countersteer_cache::trace::{MAGIC, TraceBlocks};
use countersteer_model::profile::MissCurve;
use countersteer_report::table::aligned;
use countersteer_report::{number, profile_view, write_atomically};
use serde::Serialize;

mod company;

use super::{print, print_json};
use crate::error::{FaultKind, failure};
use crate::library;

/// Associativities (numbers of ways) of the table's columns.
const WAYS: [u32; 4] = [4, 8, 16, 32];
const LINE_BYTES: u64 = 64;

/// Arguments of `steer mrc`, which shows miss curves of programs, alone or with a shared cache.
#[derive(Debug, clap::Args)]
pub struct MrcArgs {
    /// Profile, trace, or - for standard input: a trace, or one address per line (0x... or decimal). With a machine: profiles
    /// of co-running programs (files, or names of shipped ones), and traces that contain one
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Predict each program's share of a shared LLC, for each cache size, on cores of this machine
    #[arg(short = 'M', short_alias = 'm', long, conflicts_with_all = ["side", "sample", "plot"])]
    machine: Option<String>,
    /// Cache sizes (suffixes K, M, G); powers of two from 16K to 16M have set-associative columns
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size)]
    sizes: Vec<u64>,
    /// Accesses of a trace to count: data, code or both
    #[arg(long, value_name = "SIDE", default_value = "data", value_parser = side)]
    side: AccessSide,
    /// Fraction of lines whose stack distances are measured (SHARDS); accurate for caches of far more than 64 / RATE bytes
    #[arg(long, value_name = "RATE", value_parser = rate)]
    sample: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also draw the fully associative curve into this SVG file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        other => return Err(format!("`{other}` is not a suffix; K, M and G are")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is not a size"))?;
    let bytes = number
        .checked_mul(1 << shift)
        .filter(|b| (LINE_BYTES..1 << 40).contains(b));
    bytes.ok_or_else(|| "a cache has 64 bytes to a terabyte".into())
}

fn side(text: &str) -> Result<AccessSide, String> {
    match text {
        "data" => Ok(AccessSide::Data),
        "code" => Ok(AccessSide::Code),
        "both" => Ok(AccessSide::Both),
        _ => Err("the sides are data, code and both".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = crate::values::number(text)?;
    let sound = (1e-4..=1.0).contains(&rate);
    sound
        .then_some(rate)
        .ok_or_else(|| "a rate is 0.0001 to 1".into())
}

/// Row of the table for one cache size; unknown values are `null` in JSON.
#[derive(Debug, Serialize)]
struct SizeRow {
    bytes: u64,
    full_mpki: f64,
    /// Misses per kilo-instruction, one value for each associativity in [`WAYS`].
    ways_mpki: [Option<f64>; WAYS.len()],
}

#[derive(Debug, Serialize)]
struct SizeTables {
    name: String,
    instructions: u64,
    footprint_bytes: Option<f64>,
    ways: [u32; WAYS.len()],
    rows: Vec<SizeRow>,
}

pub fn run(args: &MrcArgs) -> anyhow::Result<()> {
    if let Some(machine) = &args.machine {
        return company::run(args, machine);
    }
    let [input] = args.inputs.as_slice() else {
        let why = "how several programs share a cache depends on how fast they run: name a machine (-M core2-quad)";
        return Err(failure(FaultKind::Usage, why));
    };
    let sizes = if args.sizes.is_empty() {
        (4..=14).map(|log| 1024 << log).collect()
    } else {
        args.sizes.clone()
    };
    let table = match of_profile(input, &sizes)? {
        Some(table) => table,
        None => of_stream(input, args, &sizes)?,
    };
    if let Some(path) = &args.plot {
        draw(&table, path)?;
    }
    if args.json {
        return print_json(&table);
    }
    print(&text(&table))
}

/// Draws the miss curve of fully associative caches into an SVG file.
fn draw(table: &SizeTables, path: &Path) -> anyhow::Result<()> {
    let point = |row: &SizeRow| ((row.bytes / LINE_BYTES) as f64, row.full_mpki);
    let curve = MissCurve::from_points(table.rows.iter().map(point).collect());
    let drawing = profile_view::curve_svg(&table.name, &curve)?;
    write_atomically(path, drawing.as_bytes())?;
    stderr_line!("steer: miss curve in {}", path.display());
    Ok(())
}

/// Computes the table of a profile; returns `None` if the input's name has another extension than json or toml.
fn of_profile(input: &Path, sizes: &[u64]) -> anyhow::Result<Option<SizeTables>> {
    let extension = input.extension().and_then(|e| e.to_str());
    if !matches!(extension, Some("json" | "toml")) {
        return Ok(None);
    }
    let profile = library::profile(input)?;
    let curve = profile.miss_curve().ok_or_else(|| {
        let why = format!(
            "{}: it holds misses for fewer than two cache sizes",
            input.display()
        );
        failure(FaultKind::BadInput, why)
    })?;
    let row = |bytes: &u64| SizeRow {
        bytes: *bytes,
        full_mpki: curve.mpki((*bytes / LINE_BYTES) as f64),
        ways_mpki: [None; WAYS.len()],
    };
    Ok(Some(SizeTables {
        name: profile.name().to_owned(),
        instructions: profile.instructions(),
        footprint_bytes: Some(curve.footprint_lines() * LINE_BYTES as f64),
        ways: WAYS,
        rows: sizes.iter().map(row).collect(),
    }))
}

fn of_stream(input: &Path, args: &MrcArgs, sizes: &[u64]) -> anyhow::Result<SizeTables> {
    let shown = input.display().to_string();
    let mut stream = library::stream(input)?;
    let mut curve = Curve::new(args.side, Some(args.sample.unwrap_or(1.0)), true);
    let front = stream
        .fill_buf()
        .with_context(|| library::cannot_read(input))?;
    let name = if front.starts_with(&MAGIC[..front.len().clamp(1, 8)]) {
        traced(&shown, stream, &mut curve)?
    } else {
        addresses(&shown, stream, &mut curve)?;
        stem(input)
    };
    let row = |bytes: &u64| {
        let lines = bytes / LINE_BYTES;
        SizeRow {
            bytes: *bytes,
            full_mpki: curve.full_mpki(lines).unwrap_or_default(),
            ways_mpki: WAYS.map(|ways| curve.mpki(lines, ways).filter(|_| bytes.is_power_of_two())),
        }
    };
    Ok(SizeTables {
        name,
        instructions: curve.executed(),
        footprint_bytes: curve
            .footprint_lines()
            .map(|lines| lines * LINE_BYTES as f64),
        ways: WAYS,
        rows: sizes.iter().map(row).collect(),
    })
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .map_or_else(|| "stdin".into(), |s| s.to_string_lossy().into_owned())
}

fn traced(shown: &str, input: impl Read, curve: &mut Curve) -> anyhow::Result<String> {
    let mut blocks = TraceBlocks::new(shown, input)?;
    while let Some((head, words)) = blocks.next_block()? {
        curve
            .block(&head, &words)
            .with_context(|| format!("{shown}: a damaged block of thread {}", head.thread))?;
    }
    Ok(blocks.header().name.clone())
}

/// Parses a hexadecimal or decimal address; returns `None` for other text.
fn address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads one address per line and adds it to the curve. Each address counts as one access by one instruction.
fn addresses(shown: &str, mut input: impl BufRead, curve: &mut Curve) -> anyhow::Result<()> {
    let mut raw = Vec::new();
    for number in 1_u64.. {
        raw.clear();
        if (&mut input).take(256).read_until(b'\n', &mut raw)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&raw);
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let address = address(text).ok_or_else(|| {
            let why = format!(
                "{shown}:{number}: `{}` is not an address (0x... or decimal)",
                text.escape_debug()
            );
            failure(FaultKind::BadInput, why)
        })?;
        curve.instructions(1);
        curve.touch(address / LINE_BYTES);
    }
    if curve.executed() == 0 {
        return Err(failure(
            FaultKind::BadInput,
            format!("{shown}: it contains no address"),
        ));
    }
    Ok(())
}

fn text(table: &SizeTables) -> String {
    let mut text = format!("{}: {} instructions", table.name, table.instructions);
    if let Some(bytes) = table.footprint_bytes {
        text += &format!(", {} touched", in_units(bytes as u64));
    }
    text += "\nmisses per kilo-instruction\n\n";
    let sets = table
        .rows
        .iter()
        .any(|row| row.ways_mpki.iter().any(Option::is_some));
    let shown = if sets { &WAYS[..] } else { &[] };
    let ways: Vec<String> = shown.iter().map(|ways| format!("{ways} ways")).collect();
    let ways = ways.iter().map(String::as_str);
    let head: Vec<&str> = ["size", "full"].into_iter().chain(ways).collect();
    let cells = |row: &SizeRow| {
        let values = row.ways_mpki.iter().take(shown.len());
        let values = [Some(row.full_mpki)].into_iter().chain(values.copied());
        let values = values.map(|mpki| mpki.map_or_else(|| "-".into(), |mpki| number(mpki, 4)));
        [in_units(row.bytes)].into_iter().chain(values).collect()
    };
    text + &aligned(0, &head, table.rows.iter().map(cells))
}

fn in_units(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{}M", number(b as f64 / f64::from(1 << 20), 3)),
        b => format!("{}K", number(b as f64 / 1024.0, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!(size("16K"), Ok(16384));
        assert_eq!(size("2M"), Ok(2 << 20));
        for bad in ["", "63", "1X", "-1", "99999999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sweep_of_addresses_misses_until_it_fits() {
        let lines: String = (0..10_000)
            .map(|n| format!("{}\n", n % 1000 * 64))
            .collect();
        let mut curve = Curve::new(AccessSide::Data, Some(1.0), true);
        addresses("test", lines.as_bytes(), &mut curve).unwrap();
        assert_eq!(curve.full_mpki(512), Some(1000.0));
        assert_eq!(curve.full_mpki(1024), Some(100.0));
        assert_eq!(curve.mpki(1024, 8), Some(100.0));
        let error = addresses("test", "7\nx\n".as_bytes(), &mut curve).unwrap_err();
        assert!(error.to_string().starts_with("test:2:"), "{error}");
    }
}
