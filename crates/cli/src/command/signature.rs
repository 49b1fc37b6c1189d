//! `steer signature`: makes, shows and compares cache signatures, stores them in or next to binaries, and reads them.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_cache::signature::{
    Carried, MOST_PHASES, Maker, SCHEMA, SignaturePhase, elf, store,
};
use countersteer_cache::trace::{MAGIC, TraceBlocks};
use countersteer_files::read;
use countersteer_lab::traces::nothing_executed;
use countersteer_model::printable::printable;
use countersteer_model::signature::{SIZES, Signature, WAYS};
use countersteer_report::table::aligned;
use countersteer_report::write_atomically;
use countersteer_sysfs::procfs::PROC;

use super::{print, print_json};
use crate::error::{FaultKind, failure};
use crate::library;
use crate::output::make_folder;

/// Maximum number of sets of a trace's filter. A filter with more sets omits accesses that the smallest caches of a signature
/// miss.
const MOST_FILTER_SETS: u32 = 8;

/// Make, show and compare cache signatures of programs; attach them to binaries and read them from binaries
#[derive(Debug, clap::Subcommand)]
pub enum SignatureArgs {
    /// Make a signature from traces (exact) or profiles (estimated from stack distances); several inputs are merged
    Make {
        #[arg(required = true, value_name = "TRACE|PROFILE")]
        inputs: Vec<PathBuf>,
        /// Output file; default: NAME.signature.json
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Name of the program; default: the first input's name
        #[arg(long)]
        name: Option<String>,
    },
    /// Show a signature file
    Show {
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare the signatures of two programs, or of two inputs or versions of one program
    Compare { a: PathBuf, b: PathBuf },
    /// Store a signature for a binary: in a separate file that is found by the build-id, or inside the binary
    Embed {
        binary: PathBuf,
        signature: PathBuf,
        /// Store the signature in the binary as an ELF note; code, data and build-id do not change
        #[arg(long)]
        inside: bool,
        /// With --inside: output file, instead of replacing the binary
        #[arg(short, long, value_name = "FILE", requires = "inside")]
        output: Option<PathBuf>,
    },
    /// Show the signature of a binary or of a process's binary, and where the signature is stored
    Read {
        #[arg(value_name = "PID|BINARY")]
        what: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: &SignatureArgs) -> anyhow::Result<()> {
    match args {
        SignatureArgs::Make {
            inputs,
            output,
            name,
        } => make(inputs, output.as_deref(), name.as_deref()),
        SignatureArgs::Show { file, json } => shown(&store::read(file)?, *json),
        SignatureArgs::Compare { a, b } => print(&compared(&store::read(a)?, &store::read(b)?)),
        SignatureArgs::Embed {
            binary,
            signature,
            inside,
            output,
        } => {
            let carried = store::read(signature)?;
            if *inside {
                embed(binary, &carried, output.as_deref().unwrap_or(binary))
            } else {
                beside(binary, &carried)
            }
        }
        SignatureArgs::Read { what, json } => read(what, *json),
    }
}

fn make(inputs: &[PathBuf], output: Option<&Path>, name: Option<&str>) -> anyhow::Result<()> {
    let parts = inputs
        .iter()
        .map(|path| of_input(path))
        .collect::<anyhow::Result<Vec<Carried>>>()?;
    let name = name.unwrap_or(&parts[0].name);
    let carried = Carried::merge(name, &parts).map_err(|why| failure(FaultKind::BadInput, why))?;
    let output = output.map_or_else(
        || PathBuf::from(format!("{}.signature.json", carried.name)),
        Path::to_owned,
    );
    let text = serde_json::to_string(&carried)? + "\n";
    write_atomically(&output, text.as_bytes())?;
    stderr_line!(
        "steer: {} instructions of {} inputs, {} phases; signature in {}",
        carried.instructions,
        carried.inputs.len(),
        carried.phases.len().max(1),
        output.display()
    );
    Ok(())
}

fn of_input(path: &Path) -> anyhow::Result<Carried> {
    let shown = path.display().to_string();
    let mut file = library::open(path)?;
    let mut front = [0; MAGIC.len()];
    if file.read_exact(&mut front).is_err() || front != MAGIC {
        return of_profile(path);
    }
    let file = library::open(path)?;
    let mut blocks = TraceBlocks::new(&shown, std::io::BufReader::with_capacity(1 << 20, file))?;
    let sets = blocks.header().filter_sets;
    if sets > MOST_FILTER_SETS {
        let why = format!(
            "{shown}: hits of caches with {sets} sets are omitted, and a signature has caches of {MOST_FILTER_SETS}; \
             record it with `--filter {MOST_FILTER_SETS}`"
        );
        return Err(failure(FaultKind::BadInput, why));
    }
    let mut maker = Maker::default();
    while let Some((head, words)) = blocks.next_block()? {
        maker
            .block(&head, &words)
            .with_context(|| format!("{shown}: a damaged block"))?;
    }
    let made = maker.finish(&blocks.header().name, &blocks.header().detail);
    made.ok_or_else(|| nothing_executed(&shown))
}

fn of_profile(path: &Path) -> anyhow::Result<Carried> {
    let profile = library::profile(path)?;
    let whole = 0.0..profile.instructions() as f64;
    let signature = countersteer_sim::progress::signature(&profile, whole).ok_or_else(|| {
        let why = format!(
            "{}: a tabulated profile says nothing about other caches than those it was measured on",
            path.display()
        );
        failure(FaultKind::BadInput, why)
    })?;
    Ok(Carried {
        schema: SCHEMA.into(),
        name: profile.name().chars().take(16).collect(),
        inputs: vec![path.display().to_string()],
        instructions: profile.instructions(),
        misses: *signature.counts(),
        phases: Vec::new(),
    })
}

fn shown(carried: &Carried, json: bool) -> anyhow::Result<()> {
    if json {
        print_json(carried)
    } else {
        print(&text(carried))
    }
}

fn size(row: usize) -> String {
    if row < 6 {
        format!("{}K", 16 << row)
    } else {
        format!("{}M", 1 << (row - 6))
    }
}

/// Returns a table of a value for each size of a cache and number of ways.
fn by_size(values: [[String; WAYS.len()]; SIZES]) -> String {
    let ways = WAYS.map(|ways| format!("{ways} ways"));
    let ways = ways.iter().map(String::as_str);
    let head: Vec<&str> = ["size"].into_iter().chain(ways).collect();
    let rows = values.into_iter().enumerate();
    aligned(
        0,
        &head,
        rows.map(|(row, cells)| [size(row)].into_iter().chain(cells).collect()),
    )
}

fn text(carried: &Carried) -> String {
    let mut text = format!(
        "{}: {} instructions of {} inputs\nmisses per 4,096 instructions\n\n",
        printable(&carried.name),
        carried.instructions,
        carried.inputs.len().max(1)
    );
    text += &by_size(
        carried
            .misses
            .map(|cells| cells.map(|cell| cell.to_string())),
    );
    if carried.phases.is_empty() {
        return text;
    }
    text += &format!(
        "\n{} phases (at most {MOST_PHASES}), misses with 16 ways\n\n",
        carried.phases.len()
    );
    let sizes: Vec<String> = (0..carried.misses.len()).map(size).collect();
    let sizes = sizes.iter().map(String::as_str);
    let head: Vec<&str> = ["share"].into_iter().chain(sizes).collect();
    let row = |phase: &SignaturePhase| {
        let misses = phase.misses.iter().map(|row| row[2].to_string());
        let share = format!("{:.1}%", phase.share * 100.0);
        [share].into_iter().chain(misses).collect()
    };
    text + &aligned(0, &head, carried.phases.iter().map(row))
}

/// Returns the relative speed gain from doubling the clock frequency, estimated from a signature as in HASS's figure 4. Assumes
/// clocks of 1.15 and 2.3 GHz, a cache of 512 KiB with 16 ways, and a memory latency of 100 ns.
fn gain(signature: &Signature) -> f64 {
    let memory_ns = signature.misses(524_288.0, 16) * 100.0;
    let ns = |ghz: f64| 4096.0 * 1.5 / ghz + memory_ns;
    ns(1.15) / ns(2.3)
}

fn compared(a: &Carried, b: &Carried) -> String {
    let mut text = format!(
        "difference in misses per 4,096 instructions, {} less {}\n\n",
        printable(&b.name),
        printable(&a.name)
    );
    let difference = |row: usize| {
        std::array::from_fn(|way| {
            let of = |carried: &Carried| i32::from(carried.misses[row][way]);
            format!("{:+}", of(b) - of(a))
        })
    };
    text += &by_size(std::array::from_fn(difference));
    let (first, second) = (gain(&a.signature()), gain(&b.signature()));
    let _ = write!(
        text,
        "\nspeed at 2.3 GHz over 1.15 GHz with 512 KiB: {first:.3} and {second:.3}, a difference of {:.1} %\n",
        (second / first - 1.0).abs() * 100.0
    );
    text
}

/// Stores a signature inside a binary. Replaces the file atomically, and keeps its permissions.
fn embed(binary: &Path, carried: &Carried, output: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let shown = binary.display();
    let bytes =
        read::bytes(binary, read::MOST_RECORDING).with_context(|| library::cannot_read(binary))?;
    let rights = std::fs::metadata(binary)
        .with_context(|| library::cannot_read(binary))?
        .permissions();
    if rights.mode() & 0o6000 != 0 {
        let why = format!(
            "{shown}: it is setuid or setgid, which a new file would not be: keep the signature in a side file (without --inside)"
        );
        return Err(failure(FaultKind::BadInput, why));
    }
    let changed = elf::embed(&bytes, carried)
        .map_err(|why| failure(FaultKind::BadInput, format!("{shown}: {why}")))?;
    write_atomically(output, &changed)?;
    std::fs::set_permissions(output, rights)
        .with_context(|| format!("cannot set the permissions of {}", output.display()))?;
    stderr_line!("steer: signature inside {}", output.display());
    Ok(())
}

fn beside(binary: &Path, carried: &Carried) -> anyhow::Result<()> {
    let shown = binary.display();
    let build_id = elf::read(binary)?.build_id.ok_or_else(|| {
        let why = format!("{shown}: it has no build-id to name a side file by: put the signature into it with --inside, or link it with -Wl,--build-id");
        failure(FaultKind::BadInput, why)
    })?;
    let file = store::side_file(&build_id).ok_or_else(|| {
        failure(
            FaultKind::Missing,
            "neither XDG_DATA_HOME nor HOME is set: there is no folder for side files",
        )
    })?;
    if let Some(folder) = file.parent() {
        make_folder(folder)?;
    }
    let text = serde_json::to_string(carried)? + "\n";
    write_atomically(&file, text.as_bytes())?;
    stderr_line!("steer: signature of {shown} in {}", file.display());
    Ok(())
}

fn read(what: &str, json: bool) -> anyhow::Result<()> {
    let found = match what.parse::<u32>() {
        Ok(pid) if !Path::new(what).exists() => store::of_binary(&PROC.executable_link(pid))?,
        _ => store::of_binary(Path::new(what))?,
    };
    let Some((carried, place)) = found else {
        let why = format!(
            "{what} has no signature, and there is no side file for its build-id; `steer signature embed` adds one"
        );
        return Err(failure(FaultKind::Missing, why));
    };
    match place {
        store::SignaturePlace::Inside => stderr_line!("steer: inside the binary"),
        store::SignaturePlace::Beside(file) => stderr_line!("steer: in {}", file.display()),
    }
    shown(&carried, json)
}
