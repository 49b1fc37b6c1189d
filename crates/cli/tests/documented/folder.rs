//! A folder in which command lines run: their input files, and the environment that keeps other users' files out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use countersteer_profiler::Tools;
use tempfile::TempDir;

/// Program of any name: it computes for some milliseconds, and prints a number.
const PROGRAM: &str = "#!/bin/sh\ni=0\nwhile [ $i -lt 3000 ]; do i=$((i + 1)); done\necho $i\n";
/// Process that runs for a moment in every interval, so that there is something to count.
const PROCESS: &str = "while :; do sleep 0.1; done";
/// Substitute for ssh: runs here the line that the other machine's shell would get.
const SSH: &str = "#!/bin/sh\nshift 3\nexec sh -c \"$*\"\n";

/// Temporary folder, and a process that the command lines find there.
pub struct Folder {
    dir: TempDir,
    process: Child,
    tools: Result<Tools, String>,
}

impl Folder {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("runtime")).unwrap();
        Self {
            dir,
            process: Command::new("sh").args(["-c", PROCESS]).spawn().unwrap(),
            tools: countersteer_fuzz::instrumentation::ready(countersteer_profiler::tools),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// PID of a process that runs as long as this value exists.
    pub fn pid(&self) -> String {
        self.process.id().to_string()
    }

    /// The reason for which no program can be recorded here, if there is one.
    pub fn no_recorder(&self) -> Option<&String> {
        self.tools.as_ref().err()
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes an executable file.
    pub fn install(&self, name: &str, content: impl AsRef<[u8]>) {
        let text = self.write(&format!("{name}.text"), content);
        // Another process writes the file and exits. A child of another test could otherwise hold it open for writing, which
        // prevents its execution.
        let mut install = Command::new("install");
        install.args(["-m", "755"]).arg(text);
        assert!(
            install
                .arg(self.path().join(name))
                .status()
                .unwrap()
                .success()
        );
    }

    /// Writes programs that compute for some milliseconds.
    pub fn programs(&self, names: &[&str]) {
        for name in names {
            self.install(name, PROGRAM);
        }
    }

    /// Copies a file or folder of the repository; a command may write to it.
    pub fn copy(&self, name: &str, to: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let to = self.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(root.join(name)).arg(to);
        assert!(copy.status().unwrap().success());
    }

    /// Command in this folder, with the built `steer` in the path, no terminal, and all of its own files below the folder.
    pub fn command(&self, program: &str) -> Command {
        let steer = Path::new(env!("CARGO_BIN_EXE_steer")).parent().unwrap();
        let path = format!("{}:{}", steer.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .stdin(Stdio::null())
            .env("PATH", path)
            .env("HOME", self.path())
            // Keeps sentences on one line.
            .env("COLUMNS", "1000");
        for (name, folder) in [
            ("RUNTIME_DIRECTORY", "runtime"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_CACHE_HOME", "cache"),
        ] {
            command.env(name, self.path().join(folder));
        }
        if let Ok(tools) = &self.tools {
            // It may be in the user's own cache.
            command.env("COUNTERSTEER_QEMU", &tools.engine.file);
        }
        command
    }

    /// Makes commands reach any other machine in this folder.
    pub fn substitute_ssh(&self) {
        self.install("ssh", SSH);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
