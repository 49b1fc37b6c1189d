//! Verdicts of `steer auto`: the best policy for each judged program. They are kept in a JSON file below the user's state
//! folder.
//!
//! Input: the identity of a program and of a machine. Output: the best policy for the program, and the reason. A file that is
//! damaged, or from another version of `steer`, is renamed and ignored.

use std::io::copy;
use std::path::{Path, PathBuf};

use countersteer_cache::signature::elf;
use countersteer_files::read;
use countersteer_lab::error::{FaultKind, failure};
use countersteer_report::write_atomically;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const SCHEMA: &str = "countersteer.verdicts/1";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Beginnings of interpreters' names. For an interpreter, the first argument that is a file is part of the program's identity.
const INTERPRETERS: [&str; 9] = [
    "python", "perl", "ruby", "node", "sh", "bash", "dash", "java", "lua",
];

/// Verdict on a program: the best policy for it on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// Path of the program's executable when the verdict was reached.
    pub program: String,
    /// Build-id or SHA-256 of the executable; for an interpreter, also that of its script.
    pub identity: String,
    pub machine: String,
    /// SHA-256 of the machine's description.
    pub machine_sha256: String,
    /// Best policy with its parameters; `linux` if no policy is faster than Linux by more than the margin.
    pub policy: String,
    /// Reason for the verdict, in one sentence.
    pub why: String,
    /// Gain measured against Linux in runs after the verdict; `None` before the first pair of blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Foreground programs whose run-queue latency rises under the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbs: Vec<String>,
}

/// Gain of a policy over Linux, measured in alternating blocks of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Relative gain in speed: 0.05 is 5 %.
    pub gain: f64,
    /// Confidence interval (95 %) of the gain; `None` while there are too few pairs of blocks.
    pub interval: Option<(f64, f64)>,
    /// Number of pairs of blocks, one block with the policy and one under Linux.
    pub pairs: u64,
}

/// File of verdicts.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Name and version of this layout.
    schema: String,
    /// Version of `steer` that wrote the file.
    version: String,
    verdicts: Vec<Remembered>,
}

/// All verdicts of a user, and the path of their file.
pub struct Verdicts {
    path: PathBuf,
    pub all: Vec<Remembered>,
}

impl Verdicts {
    /// Reads the user's verdicts. If the file is invalid, renames it, prints a message, and returns no verdicts.
    pub fn load() -> anyhow::Result<Self> {
        let path = state_folder()?.join("verdicts.json");
        let all = match parse(&path) {
            Ok(all) => all,
            Err(why) => {
                let aside = path.with_extension("json.set-aside");
                std::fs::rename(&path, &aside)?;
                say!(
                    "{} is not trusted ({why}); it is now {}, and programs are judged again",
                    path.display(),
                    aside.display()
                );
                Vec::new()
            }
        };
        Ok(Self { path, all })
    }

    /// Writes all verdicts to the user's file.
    pub fn save(&self) -> anyhow::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(write_atomically(&self.path, text(&self.all)?.as_bytes())?)
    }

    /// Returns the verdict on a program on a machine; `None` if there is none.
    pub fn find(&self, identity: &str, machine_sha256: &str) -> Option<&Remembered> {
        let same = |v: &&Remembered| v.identity == identity && v.machine_sha256 == machine_sha256;
        self.all.iter().find(same)
    }

    /// Adds a verdict; replaces an older verdict on the same program and machine.
    pub fn remember(&mut self, verdict: Remembered) {
        let same = |v: &Remembered| {
            v.identity == verdict.identity && v.machine_sha256 == verdict.machine_sha256
        };
        self.all.retain(|v| !same(v));
        self.all.push(verdict);
    }

    /// Writes all verdicts to the file `path`.
    pub fn export(&self, path: &Path) -> anyhow::Result<()> {
        Ok(write_atomically(path, text(&self.all)?.as_bytes())?)
    }

    /// Adds the verdicts of the file `path`, and returns the number of verdicts read.
    pub fn import(&mut self, path: &Path) -> anyhow::Result<usize> {
        if !path.exists() {
            let why = format!("there is no file {}", path.display());
            return Err(failure(FaultKind::Missing, why));
        }
        let refused = |why| {
            let why = format!("{}: {why}; nothing was imported", path.display());
            failure(FaultKind::BadInput, why)
        };
        let new = parse(path).map_err(refused)?;
        let count = new.len();
        new.into_iter().for_each(|verdict| self.remember(verdict));
        Ok(count)
    }
}

/// Parses a file of verdicts. Returns an empty list if the file does not exist, and an error message if the file is invalid.
fn parse(path: &Path) -> Result<Vec<Remembered>, String> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = read::text(path).map_err(|e| e.to_string())?;
    let kept: Kept = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    if kept.schema != SCHEMA || kept.version != VERSION {
        let of = format!("{} of version {}", kept.schema, kept.version);
        return Err(format!("it is {of}, and this is {SCHEMA} of {VERSION}"));
    }
    Ok(kept.verdicts)
}

fn text(verdicts: &[Remembered]) -> serde_json::Result<String> {
    let kept = Kept {
        schema: SCHEMA.into(),
        version: VERSION.into(),
        verdicts: verdicts.to_vec(),
    };
    Ok(serde_json::to_string_pretty(&kept)? + "\n")
}

/// Returns the user's folder for program state, according to the XDG base directory specification.
fn state_folder() -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state"));
    let folder = state.or_else(home).ok_or_else(|| {
        let why = "neither XDG_STATE_HOME nor HOME is set: there is no folder for verdicts";
        failure(FaultKind::Usage, why)
    })?;
    Ok(folder.join("countersteer"))
}

/// Returns the path of a program's executable, and the program's identity: a build-id or a SHA-256.
pub fn identity(command: &[String]) -> anyhow::Result<(PathBuf, String)> {
    let executable = countersteer_sysfs::launch::find_program(command)?;
    let mut identity = fingerprint(&executable)?;
    let name = executable.file_name().unwrap_or_default().to_string_lossy();
    if INTERPRETERS.iter().any(|known| name.starts_with(known)) {
        let script = command[1..].iter().find(|word| Path::new(word).is_file());
        if let Some(script) = script {
            identity = format!("{identity}+{}", fingerprint(Path::new(script))?);
        }
    }
    Ok((executable, identity))
}

/// Returns the build-id of an executable file, or the SHA-256 of the file if it has no build-id.
fn fingerprint(path: &Path) -> anyhow::Result<String> {
    let build_id = elf::read(path).ok().and_then(|b| b.build_id);
    if let Some(id) = build_id {
        let hex: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
        return Ok(format!("build-id:{}", hex.concat()));
    }
    let mut sum = Sha256::new();
    copy(&mut read::open(path)?, &mut sum)?;
    Ok(format!("sha256:{:x}", sum.finalize()))
}

/// Returns the SHA-256 of a machine's description as hexadecimal digits.
pub(crate) fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(policy: &str) -> Remembered {
        Remembered {
            program: "/bin/a".into(),
            identity: "build-id:01".into(),
            machine: "m".into(),
            machine_sha256: "02".into(),
            policy: policy.into(),
            why: "it gains".into(),
            measured: None,
            disturbs: Vec::new(),
        }
    }

    #[test]
    fn the_checked_in_schema_is_that_of_the_type() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/verdicts.schema.json");
        let schema = schemars::schema_for!(Kept);
        let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "run the tests with COUNTERSTEER_BLESS=1");
    }

    #[test]
    fn a_program_has_one_verdict_per_machine() {
        let mut verdicts = Verdicts {
            path: PathBuf::new(),
            all: Vec::new(),
        };
        verdicts.remember(verdict("hsf"));
        verdicts.remember(verdict("linux"));
        let elsewhere = Remembered {
            machine_sha256: "03".into(),
            ..verdict("joint")
        };
        verdicts.remember(elsewhere);
        assert_eq!(verdicts.all.len(), 2);
        let policy = |machine| {
            verdicts
                .find("build-id:01", machine)
                .unwrap()
                .policy
                .clone()
        };
        assert_eq!(
            (policy("02"), policy("03")),
            ("linux".into(), "joint".into())
        );
        assert_eq!(verdicts.find("build-id:02", "02"), None);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_or_old_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verdicts.json");
        assert_eq!(parse(&path), Ok(Vec::new()));
        let good = text(&[verdict("hsf")]).unwrap();
        std::fs::write(&path, &good).unwrap();
        assert_eq!(parse(&path), Ok(vec![verdict("hsf")]));
        for bad in [
            &good[..good.len() / 2],
            "",
            "\0\0",
            &good.replace(VERSION, "0.0.0"),
            &good.replace("\"why\"", "\"reason\""),
        ] {
            std::fs::write(&path, bad).unwrap();
            assert!(parse(&path).is_err(), "{bad}");
        }
        assert!(parse(dir.path()).unwrap_err().contains("regular"));
    }

    #[test]
    fn scripts_of_one_interpreter_are_different_programs() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.display().to_string()
        };
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            identity(&words).unwrap().1
        };
        let (one, two) = (script("one"), script("two"));
        assert_ne!(of(&["sh", &one]), of(&["sh", &two]));
        assert_eq!(of(&["sh", "-e", &one]), of(&["sh", &one]));
        // For programs that are not interpreters, files are input.
        assert_eq!(of(&["cat", &one]), of(&["cat", &two]));
    }
}
