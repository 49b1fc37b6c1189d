//! Compilation of a scheduler's BPF sources for this machine.
//!
//! The headers that the sources include are those of this crate, which declare what the simulator offers. A checkout's own
//! headers follow after them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersteer_files::read;
use countersteer_files::scratch::Scratch;

use crate::compiler::{LONGEST, compile};
use crate::error::ScxError;

/// Headers and the runtime, by their paths below the folder of headers.
const HEADERS: [(&str, &str); 16] = [
    ("sim.h", include_str!("../include/sim.h")),
    ("vmlinux.h", include_str!("../include/vmlinux.h")),
    ("runtime.c", include_str!("../include/runtime.c")),
    (
        "scx/common.bpf.h",
        include_str!("../include/scx/common.bpf.h"),
    ),
    ("scx/masks.h", include_str!("../include/scx/masks.h")),
    (
        "scx/compat.bpf.h",
        include_str!("../include/scx/compat.bpf.h"),
    ),
    (
        "scx/enums.bpf.h",
        include_str!("../include/scx/enums.bpf.h"),
    ),
    (
        "scx/user_exit_info.bpf.h",
        include_str!("../include/scx/user_exit_info.bpf.h"),
    ),
    (
        "scx/percpu.bpf.h",
        include_str!("../include/scx/percpu.bpf.h"),
    ),
    (
        "bpf/bpf_helpers.h",
        include_str!("../include/bpf/bpf_helpers.h"),
    ),
    (
        "bpf/bpf_core_read.h",
        include_str!("../include/bpf/bpf_core_read.h"),
    ),
    (
        "bpf/bpf_tracing.h",
        include_str!("../include/bpf/bpf_tracing.h"),
    ),
    ("lib/pmu.h", include_str!("../include/lib/pmu.h")),
    (
        "lib/alloc/bpf_helpers_local.h",
        include_str!("../include/lib/alloc/bpf_helpers_local.h"),
    ),
    (
        "bpf_arena_common.bpf.h",
        include_str!("../include/bpf_arena_common.bpf.h"),
    ),
    ("bpf_atomic.h", include_str!("../include/bpf_atomic.h")),
];

/// Other names of headers, as checkouts of different ages have them.
const NAMES: [(&str, &str); 7] = [
    ("bpf_arena_common.h", "bpf_arena_common.bpf.h"),
    ("bpf_arena_spin_lock.h", "bpf_arena_common.bpf.h"),
    ("bpf_experimental.h", "scx/common.bpf.h"),
    ("scx/bpf_arena_common.h", "bpf_arena_common.bpf.h"),
    ("scx/bpf_arena_common.bpf.h", "bpf_arena_common.bpf.h"),
    ("scx/bpf_arena_spin_lock.h", "bpf_arena_common.bpf.h"),
    ("scx/bpf_atomic.h", "bpf_atomic.h"),
];

/// Options of the compiler. `const` is removed, so that a scheduler's read-only variables can be set before it starts. Type
/// errors between kernels' versions of a kfunc are as harmless as in BPF. The debugging information is what [`crate::layout`] reads.
const OPTIONS: [&str; 11] = [
    "-O2",
    "-g",
    "-shared",
    "-fPIC",
    "-std=gnu11",
    "-w",
    "-Dconst=",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-Wl,-z,defs",
    "-Wl,-Bsymbolic",
];

/// Option that names a folder of headers.
const INCLUDES: &str = "-I";

/// Option for code without vector registers, as in BPF. Vector instructions want data at addresses that arenas do not promise.
fn scalar() -> Option<&'static str> {
    let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    known.then_some("-mgeneral-regs-only")
}

/// Limit on a compiled scheduler, in bytes.
const MOST_CODE: u64 = 256 << 20;

/// Lines of a compiler's output that an error shows.
const LINES_SHOWN: usize = 12;

/// Compiled scheduler. Each simulation loads a copy of its own, because schedulers keep their state in global variables.
#[derive(Clone, Debug)]
pub struct Library {
    pub source: PathBuf,
    pub code: Vec<u8>,
    /// Options of the scheduler's table that its user-space half sets.
    pub flags: u64,
}

impl Library {
    /// Compiles a scheduler: a file `NAME.bpf.c`, a folder of such files, or a crate with `src/bpf`.
    ///
    /// # Errors
    /// Fails without sources or a compiler, and if the scheduler needs what the simulator lacks.
    pub fn build(source: &Path) -> Result<Self, ScxError> {
        let files = sources(source)?;
        for file in &files {
            let checked = read::open_within(file, read::MOST_TEXT);
            checked.map_err(|why| unreadable(file, why))?;
        }
        let user_space = text_if_any(&source.join("src/main.rs"))?;
        let failed = |why| ScxError::Files {
            path: std::env::temp_dir(),
            why,
        };
        // The compiler ends with this process, too.
        let place = Scratch::of_processes("steer-scx-").map_err(failed)?;
        let others = NAMES.map(|(name, of)| (name, format!("#include <{of}>\n")));
        let headers = HEADERS.map(|(name, text)| (name, text.to_owned()));
        for (name, text) in headers.into_iter().chain(others) {
            let path = place.path().join(name);
            let folder = path.parent().unwrap_or(place.path());
            std::fs::create_dir_all(folder).map_err(failed)?;
            std::fs::write(&path, text).map_err(failed)?;
        }
        let made = place.path().join("scheduler.so");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let mut command = Command::new(&compiler);
        command.args(OPTIONS).args(scalar());
        let mut headers = OsString::from(INCLUDES);
        headers.push(place.path());
        command.arg(headers);
        for folder in folders(&files) {
            command.arg(INCLUDES).arg(folder);
        }
        command.args(&files).arg(place.path().join("runtime.c"));
        command.arg("-o").arg(&made).env("LC_ALL", "C");
        // A compiler that is killed leaves its files.
        command.env("TMPDIR", place.path());
        let done = compile(&mut command, LONGEST).map_err(|why| ScxError::NoCompiler {
            compiler,
            why: why.to_string(),
        })?;
        let done = done.ok_or_else(|| ScxError::Endless {
            path: source.to_owned(),
            seconds: LONGEST.as_secs(),
        })?;
        if !done.status.success() {
            return Err(not_compiled(source, &done.said));
        }
        Ok(Self {
            source: source.to_owned(),
            code: read::bytes(&made, MOST_CODE).map_err(failed)?,
            flags: crate::flags::flags(&user_space),
        })
    }
}

/// Source files of a scheduler, sorted.
fn sources(source: &Path) -> Result<Vec<PathBuf>, ScxError> {
    if source.is_file() {
        return Ok(vec![source.to_owned()]);
    }
    let listed = listed(source)?;
    if !listed.is_empty() {
        return Ok(listed);
    }
    let within = source.join("src/bpf");
    let folder = if within.is_dir() {
        within
    } else {
        source.to_owned()
    };
    let is_source = |path: &PathBuf| path.to_string_lossy().ends_with(".bpf.c");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(is_source)
        .collect();
    files.sort();
    if files.is_empty() {
        let path = source.to_owned();
        return Err(ScxError::NoSource { path });
    }
    Ok(files)
}

/// Files that a crate's build script names, among them those of the shared library; empty without a script.
fn listed(source: &Path) -> Result<Vec<PathBuf>, ScxError> {
    let script = text_if_any(&source.join("build.rs"))?;
    let quoted = script.split('"').skip(1).step_by(2);
    let named = quoted
        // Counters are those of `lib/pmu.h` here: none.
        .filter(|text| text.ends_with(".bpf.c") && !text.ends_with("/pmu.bpf.c"))
        .map(|text| source.join(text))
        .filter(|file| file.is_file());
    Ok(named.collect())
}

/// Text of a file of the scheduler; empty if there is no such file.
fn text_if_any(file: &Path) -> Result<String, ScxError> {
    match read::text(file) {
        Ok(text) => Ok(text),
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(String::new())
        }
        Err(why) => Err(unreadable(file, why)),
    }
}

fn unreadable(file: &Path, why: std::io::Error) -> ScxError {
    let path = file.to_owned();
    ScxError::Unreadable { path, why }
}

/// Folders of headers: those of the sources, and the shared ones of their checkout.
fn folders(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let absolute = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone());
    let own = files
        .iter()
        .filter_map(|file| absolute(file).parent().map(Path::to_owned));
    let own: BTreeSet<PathBuf> = own.collect();
    let above = own.iter().flat_map(|folder| folder.ancestors());
    let shared = above.map(|folder| folder.join("scheds/include"));
    let shared: Vec<_> = shared.filter(|folder| folder.is_dir()).collect();
    own.into_iter().chain(shared).collect()
}

/// Reason from the compiler's output: what the simulator lacks, or the first errors.
fn not_compiled(source: &Path, said: &str) -> ScxError {
    let path = source.to_owned();
    let quoted = |line: &str, before: &str| {
        let rest = line.split_once(before)?.1;
        let name = rest.trim_start_matches(['`', '\'', '‘']);
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        Some(name[..end].to_owned())
    };
    let lacking: BTreeSet<String> = said
        .lines()
        .filter_map(|line| quoted(line, "undefined reference to "))
        .collect();
    if !lacking.is_empty() {
        let names = lacking.into_iter().collect::<Vec<_>>().join(", ");
        return ScxError::Lacking { path, names };
    }
    // Each file that includes a header repeats the header's errors.
    let mut errors: Vec<&str> = Vec::new();
    for line in said.lines().filter(|line| line.contains("error")) {
        if !errors.contains(&line) {
            errors.push(line);
        }
    }
    errors.truncate(LINES_SHOWN);
    let said = errors.join("\n");
    ScxError::NotCompiled { path, said }
}
