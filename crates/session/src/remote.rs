//! Runs the same command on another machine, through the system's ssh.
//!
//! Input: this command's arguments. Effect of [`run_there`]: ssh replaces this process, so the output, exit code and signals are
//! those of ssh.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::{FaultKind, failure};

const SSH_VARIABLE: &str = "COUNTERSTEER_SSH";
/// Option that names the host. The remote command line does not contain the option.
const OPTION: (&str, bool) = ("--host", true);

/// Runs this command on `host`, where `steer` must be in PATH. `program` is the number of words of the program to start. Returns an
/// error only if ssh cannot be started.
pub fn run_there(host: &str, program: usize) -> anyhow::Error {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut ssh = match command(host, &words_there(&words, program)) {
        Ok(ssh) => ssh,
        Err(error) => return error,
    };
    let error = ssh.exec();
    let ssh = ssh.get_program().display();
    failure(
        FaultKind::Missing,
        format!("cannot start {ssh}: {error}; install an ssh client"),
    )
}

/// Returns the command that runs `steer` with these arguments on `host`.
///
/// # Errors
/// It is no name of a host.
pub fn command(host: &str, words: &[OsString]) -> anyhow::Result<Command> {
    if host.is_empty() || host.starts_with('-') {
        return Err(failure(
            FaultKind::Usage,
            format!("`{host}` is no host; write user@machine, or a name of ~/.ssh/config"),
        ));
    }
    let ssh = std::env::var_os(SSH_VARIABLE).unwrap_or_else(|| "ssh".into());
    let mut command = Command::new(ssh);
    command.arg("-T").arg(host).arg("--").arg(line(words));
    Ok(command)
}

/// Returns the arguments without [`OPTION`]. The last `program` words are those of the program to start.
fn words_there(words: &[OsString], program: usize) -> Vec<OsString> {
    let (own, program) = words.split_at(words.len().saturating_sub(program));
    let mut kept = without(own, &[OPTION]);
    kept.extend_from_slice(program);
    kept
}

/// Returns arguments without some options, each with true if it has a value.
pub fn without(words: &[OsString], options: &[(&str, bool)]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.as_bytes().split(|byte| *byte == b'=').next();
        match options
            .iter()
            .find(|(option, _)| Some(option.as_bytes()) == name)
        {
            // The value may be the next word.
            Some((option, true)) if word == option => drop(words.next()),
            Some(_) => {}
            None => kept.push(word.clone()),
        }
    }
    kept
}

/// Returns the remote command line: `steer` and its arguments, quoted for a shell.
fn line(words: &[OsString]) -> OsString {
    let mut line = b"steer".to_vec();
    for word in words {
        line.push(b' ');
        line.extend(quoted(word));
    }
    OsString::from_vec(line)
}

/// Quotes an argument for a POSIX shell, if necessary.
fn quoted(arg: &OsStr) -> Vec<u8> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_=/.,:@%+".contains(b);
    if !arg.is_empty() && arg.as_bytes().iter().all(plain) {
        return arg.as_bytes().to_vec();
    }
    let mut text = b"'".to_vec();
    for byte in arg.as_bytes() {
        if *byte == b'\'' {
            text.extend(b"'\\''")
        } else {
            text.push(*byte)
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(args: &[&str], program: usize) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        line(&words_there(&args, program)).into_string().unwrap()
    }

    #[test]
    fn only_our_own_option_is_left_out() {
        assert_eq!(
            there(&["stat", "--host", "a@b", "-i", "1s", "--", "x"], 1),
            "steer stat -i 1s -- x"
        );
        assert_eq!(
            there(&["stat", "--host=a@b", "--", "ssh", "--host", "c"], 3),
            "steer stat -- ssh --host c"
        );
        assert_eq!(
            there(&["stat", "--host", "a@b", "prog", "--host", "c"], 3),
            "steer stat prog --host c"
        );
    }

    #[test]
    fn a_shell_gets_every_argument_as_it_is() {
        let args = [
            "a b",
            "",
            "it's",
            "$(rm -rf x)",
            "cpu/event=0x2e,umask=1/",
            "`x`;y\n&",
        ];
        let line = there(&args, 0).replacen("steer", "printf '%s\\0'", 1);
        let shell = Command::new("sh").arg("-c").arg(line).output().unwrap();
        assert_eq!(
            shell.stdout,
            args.map(|a| format!("{a}\0")).concat().as_bytes()
        );
    }
}
