//! Compiles the BPF programs and writes their Rust side: skeletons, and the constants of headers that both sides share.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use libbpf_cargo::SkeletonBuilder;

/// Prints the error with its remedy, and ends the build: a scheduler that is not built from this source must never be loaded.
fn fail(what: &str) -> ! {
    eprintln!("countersteer-bpf: {what}");
    process::exit(1)
}

/// Oldest supported version: no kernel accepts the types that older ones write for the kernel's functions.
const OLDEST_CLANG: u32 = 19;

/// Version of a compiler; `None` if it is not clang.
fn major(name: &str) -> Option<u32> {
    let output = process::Command::new(name).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split("clang version ")
        .nth(1)?
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// Path of the compiler: `CLANG` of the environment, or the newest one found.
fn clang() -> PathBuf {
    println!("cargo:rerun-if-env-changed=CLANG");
    if let Some(named) = env::var_os("CLANG") {
        return named.into();
    }
    let names = (OLDEST_CLANG..=24)
        .rev()
        .map(|n| format!("clang-{n}"))
        .chain(["clang".to_owned()]);
    let works = |name: &String| major(name).is_some_and(|version| version >= OLDEST_CLANG);
    let Some(found) = names.into_iter().find(works) else {
        fail(
            "the sched_ext scheduler is compiled by clang 19 or newer, and there is none; on Debian: apt-get install clang-19 \
             libelf-dev zlib1g-dev; or build `steer` without --features scx, and so without that scheduler",
        )
    };
    found.into()
}

/// Converts lines `#define NAME NUMBER` to Rust constants.
fn constants(header: &Path) -> String {
    let text =
        fs::read_to_string(header).unwrap_or_else(|e| fail(&format!("{}: {e}", header.display())));
    let constant = |line: &str| {
        let mut words = line.strip_prefix("#define ")?.split_whitespace();
        let (name, value) = (words.next()?, words.next()?);
        value
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| format!("pub const {name}: u32 = {value};\n"))
    };
    text.lines().filter_map(constant).collect()
}

/// BPF programs, each with its Rust side.
const PROGRAMS: [&str; 4] = ["engine", "follow", "adopt", "latency"];
/// Headers that both sides share.
const SHARED: [&str; 3] = ["shared", "follow", "latency"];

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for header in SHARED {
        let written = fs::write(
            out.join(format!("{header}.rs")),
            constants(&Path::new("src/bpf").join(format!("{header}.h"))),
        );
        written.unwrap_or_else(|e| fail(&format!("{}: {e}", out.display())));
    }
    let clang = clang();
    for program in PROGRAMS {
        let source = format!("src/bpf/{program}.bpf.c");
        let built = SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(["-Wall", "-Werror", "-mcpu=v3"])
            .build_and_generate(out.join(format!("{program}.skel.rs")));
        if let Err(e) = built {
            fail(&format!("{source} does not compile: {e:#}"));
        }
    }
}
