//! Cycles per instruction of the hot loops of small programs between misses, compared with LLVM's scheduling models and OSACA.
//!
//! The programs are those of `demo/kernels.c`, with recordings in `profiles/recorded`. The model's result is for the longest
//! phase of the recording, without branches and misses. `llvm-mca` and `osaca` analyse the loop itself, compiled on this host,
//! with hits in the first level of the cache. All are models, so a difference only shows what to examine. OSACA takes the longer
//! of the busiest port and the longest loop-carried dependence, and has no width and no window.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel};

use super::runner::{machine, profiles, quantile, root};

/// Programs of `demo/kernels.c` that spend their time in one innermost loop.
const KERNELS: [&str; 6] = ["stream", "stencil", "matmul", "sieve", "chase", "mix"];
/// Core types: machine, name in its file, name in LLVM, name in OSACA.
const CORES: [(&str, &str, &str, &str); 2] = [
    ("i9-12900k-8p8e", "golden-cove", "alderlake", "SPR"),
    ("ryzen-7950x3d", "zen4", "znver4", "ZEN4"),
];
/// Releases of `llvm-mca` that know these core types, newest first.
const TOOLS: [&str; 6] = [
    "llvm-mca-21",
    "llvm-mca-20",
    "llvm-mca-19",
    "llvm-mca-18",
    "llvm-mca-17",
    "llvm-mca",
];

/// Prints the section, or the reason for which it is missing.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "\n### Hot loops beside LLVM's scheduling models and OSACA: cycles per instruction between misses\n"
    );
    let Some(tool) = TOOLS.into_iter().find(|tool| works(tool)) else {
        println!(
            "Not measured: no `llvm-mca` that knows `alderlake` and `znver4` is installed (Debian: llvm-19)."
        );
        return Ok(());
    };
    let folder = std::env::temp_dir().join(format!("countersteer-loops-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let loops = hot_loops(&folder);
    std::fs::remove_dir_all(&folder)?;
    let loops = match loops {
        Ok(loops) => loops,
        Err(why) => {
            println!("Not measured: {why}.");
            return Ok(());
        }
    };
    table(tool, &loops)
}

/// Prints the table: rows are loops, columns are core types and models.
fn table(tool: &str, loops: &[(&str, Vec<String>)]) -> Result<(), Box<dyn Error>> {
    let with_osaca = osaca("SPR", &["addq %rax, %rbx".to_owned()]).is_ok();
    let missing = if with_osaca {
        ""
    } else {
        ", which is not installed"
    };
    println!("gcc -O2. Model/`{tool}`, model/OSACA{missing}.\n");
    let heads = CORES.map(|(_, core, ..)| format!("{core}, LLVM | {core}, OSACA"));
    println!("| loop | instructions | {} |", heads.join(" | "));
    println!("|---|---|---|---|---|---|");
    let mut errors: [Vec<f64>; 2 * CORES.len()] = Default::default();
    for (kernel, block) in loops {
        let mut cells = Vec::new();
        for (machine, core, cpu, arch) in CORES {
            let ours = base(machine, core, kernel)?;
            let theirs = [mca(tool, cpu, block).map(Some)?, osaca(arch, block).ok()];
            for theirs in theirs {
                let differs = theirs.map(|theirs| ours / theirs - 1.0);
                errors[cells.len()].extend(differs.map(f64::abs));
                cells.push(match (theirs, differs) {
                    (Some(theirs), Some(by)) => {
                        format!("{ours:.3}/{theirs:.3} {:+.0} %", by * 100.0)
                    }
                    _ => String::new(),
                });
            }
        }
        println!("| {kernel} | {} | {} |", block.len(), cells.join(" | "));
    }
    let medians = errors.iter_mut().map(|errors| {
        errors.sort_by(f64::total_cmp);
        match errors.is_empty() {
            true => String::new(),
            false => format!("{:.0} %", quantile(errors, 0.5) * 100.0),
        }
    });
    let medians: Vec<String> = medians.collect();
    println!("| median difference | | {} |", medians.join(" | "));
    Ok(())
}

fn works(tool: &str) -> bool {
    let known = |cpu: &str| mca(tool, cpu, &["addq %rax, %rbx".to_owned()]).is_ok();
    CORES.iter().all(|(_, _, cpu, _)| known(cpu))
}

/// Runs a command; returns its output, or an error message.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .output()
        .map_err(|e| format!("`{name}` cannot be started ({e})"))?;
    if !done.status.success() {
        return Err(format!(
            "`{name}` failed: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Hot loop of each kernel, as instructions.
fn hot_loops(folder: &Path) -> Result<Vec<(&'static str, Vec<String>)>, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the loops are those of x86-64".into());
    }
    let binary = folder.join("kernels");
    // Separate functions, without inlining; the relevant loops contain no calls.
    output(
        Command::new("cc")
            .args(["-O2", "-fno-inline", "-o"])
            .arg(&binary)
            .arg(root().join("demo/kernels.c")),
    )?;
    let mut loops = Vec::new();
    for kernel in KERNELS {
        let mut objdump = Command::new("objdump");
        objdump
            .args([
                "-d",
                "--no-show-raw-insn",
                &format!("--disassemble={kernel}"),
            ])
            .arg(&binary);
        let code = instructions(&output(&mut objdump)?);
        loops.push((
            kernel,
            hottest(&code).ok_or(format!("`{kernel}` has no loop"))?,
        ));
    }
    Ok(loops)
}

/// Address and text of each instruction.
fn instructions(text: &str) -> Vec<(u64, String)> {
    let line = |line: &str| {
        let (address, rest) = line.trim().split_once(":\t")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, rest.split('#').next()?.trim().to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Target address of a jump; `None` for other instructions.
fn target(text: &str) -> Option<u64> {
    let (name, rest) = text.split_once(char::is_whitespace)?;
    let to = rest.split_whitespace().next()?;
    name.starts_with('j')
        .then(|| u64::from_str_radix(to, 16).ok())?
}

/// Innermost loop with the deepest nesting, without calls and returns (jumps back to a shared end are no loops). Of several, the
/// last is returned.
fn hottest(code: &[(u64, String)]) -> Option<Vec<String>> {
    let row = |address| code.iter().position(|(at, _)| *at == address);
    let back = code.iter().enumerate().filter_map(|(end, (at, text))| {
        let start = row(target(text).filter(|to| to <= at)?)?;
        Some((start, end))
    });
    let loops: Vec<(usize, usize)> = back.collect();
    let inside = |a: &(usize, usize), b: &(usize, usize)| a != b && b.0 <= a.0 && a.1 <= b.1;
    let leaves = |(start, end): &(usize, usize)| {
        let code = &code[*start..=*end];
        code.iter()
            .any(|(_, text)| text.starts_with("call") || text.starts_with("ret"))
    };
    let innermost = loops
        .iter()
        .filter(|l| !loops.iter().any(|other| inside(other, l)) && !leaves(l));
    let depth = |l: &&(usize, usize)| (loops.iter().filter(|other| inside(l, other)).count(), l.1);
    let (start, end) = innermost.max_by_key(depth)?;
    Some(
        code[*start..=*end]
            .iter()
            .map(|(_, text)| text.clone())
            .collect(),
    )
}

/// Output of a tool for a loop: `.Lstart`, the loop, and a jump back to it.
fn analysed(tool: &str, arguments: &[&str], block: &[String]) -> Result<String, String> {
    let lines = block.iter().map(|text| match target(text) {
        Some(_) => {
            text.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
                + " .Lstart"
        }
        None => text.clone(),
    });
    let source = format!(".Lstart:\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    let file = std::env::temp_dir().join(format!("countersteer-loop-{}.s", std::process::id()));
    std::fs::write(&file, source).map_err(|e| e.to_string())?;
    let text = output(Command::new(tool).args(arguments).arg(&file));
    std::fs::remove_file(&file).map_err(|e| e.to_string())?;
    text
}

/// Cycles per instruction of a loop by `llvm-mca`.
fn mca(tool: &str, cpu: &str, block: &[String]) -> Result<f64, String> {
    let cpu = format!("-mcpu={cpu}");
    let text = analysed(tool, &["-march=x86-64", &cpu, "-iterations=1000"], block)?;
    let figure = |key: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line[key.len()..].trim().parse().ok()
    };
    let cycles = figure("Total Cycles:").zip(figure("Instructions:"));
    cycles
        .map(|(cycles, n)| cycles / n)
        .ok_or(format!("`{tool}` did not say how many cycles"))
}

/// Cycles per instruction of a loop by `osaca`: the busiest port, or the longest dependence between iterations.
fn osaca(arch: &str, block: &[String]) -> Result<f64, String> {
    let arguments = ["--arch", arch, "--syntax", "ATT", "--ignore-unknown"];
    let text = analysed("osaca", &arguments, block)?;
    // The sums below the table: each port, the critical path, and the loop-carried dependence.
    let sums = text.lines().find_map(|line| {
        let figures: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        figures.ok().filter(|figures| figures.len() > 4)
    });
    let mut sums = sums.ok_or("`osaca` printed no sums")?;
    sums.remove(sums.len() - 2);
    Ok(sums.into_iter().fold(0.0, f64::max) / block.len() as f64)
}

/// Cycles per instruction of the longest phase of a recorded program, without those for branches and misses.
fn base(on: &str, core: &str, kernel: &str) -> Result<f64, Box<dyn Error>> {
    let topology = machine(on)?;
    let all = profiles("recorded")?;
    let profile = all
        .iter()
        .find(|p| p.name() == kernel)
        .ok_or(format!("no profile `{kernel}`"))?;
    let Profile::Recorded(recorded) = &**profile else {
        return Err(format!("`{kernel}` was not recorded").into());
    };
    let longest = recorded
        .timeline
        .iter()
        .max_by_key(|s| s.instructions)
        .ok_or("an empty profile")?;
    let before = recorded
        .timeline
        .iter()
        .take_while(|s| *s != longest)
        .map(|s| s.instructions);
    let offset = before.sum::<u64>() as f64;
    let cpu = topology
        .cpus
        .iter()
        .find(|c| topology.core_types[c.core_type.index()].name == core);
    let cpu = cpu.map(|c| c.id).ok_or(format!("no core `{core}`"))?;
    let config = ProgressConfig {
        contention: false,
        costs: false,
        ..ProgressConfig::default()
    };
    let mut model = Analytic::new(Arc::clone(&topology), config);
    let id = model.add_program(Arc::clone(profile))?;
    let (thread, work) = (ThreadId(0), longest.instructions as f64);
    model.add_thread(thread, id);
    model.set_work(thread, offset, work, 1.0, Nanos::ZERO);
    model.set_running(CpuId(cpu.0), Some(thread), Nanos::ZERO);
    let end = model.next_event();
    let counted = model.counters(thread, end);
    let lost = counted.detail.stall_memory + counted.detail.stall_branches;
    Ok((counted.cycles - lost) / counted.instructions)
}
