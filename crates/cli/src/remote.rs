//! Runs the same command on another machine, through the system's ssh.
//!
//! Input: this command's arguments. Effect: ssh replaces this process, so the output, exit code and signals are those of ssh.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::{Kind, failure};

const SSH_VARIABLE: &str = "COUNTERSTEER_SSH";
/// Option that names the host. The remote command line does not contain the option.
const OPTION: &str = "--host";

/// Runs this command on `host`, where `steer` must be in PATH. Returns an error only if ssh cannot be started.
pub fn run_there(host: &str) -> anyhow::Error {
    if host.is_empty() || host.starts_with('-') {
        return failure(
            Kind::Usage,
            format!("`{host}` is no host; write user@machine, or a name of ~/.ssh/config"),
        );
    }
    let ssh = std::env::var_os(SSH_VARIABLE).unwrap_or_else(|| "ssh".into());
    let command = remote_command(std::env::args_os().skip(1));
    let error = Command::new(&ssh)
        .arg("-T")
        .arg(host)
        .arg("--")
        .arg(command)
        .exec();
    failure(
        Kind::Missing,
        format!(
            "cannot start {}: {error}; install an ssh client",
            ssh.display()
        ),
    )
}

/// Builds the remote command line: `steer` and its arguments without [`OPTION`], quoted for a shell.
fn remote_command(args: impl Iterator<Item = OsString>) -> OsString {
    let mut command = b"steer".to_vec();
    let with_value = format!("{OPTION}=");
    let mut value_next = false;
    let mut ours = true;
    for arg in args {
        if std::mem::take(&mut value_next) {
            continue;
        }
        let alone = arg == OPTION;
        if ours && (alone || arg.as_bytes().starts_with(with_value.as_bytes())) {
            value_next = alone;
            // Clap accepts this option once, so later occurrences are arguments of the program to start.
            ours = false;
            continue;
        }
        command.push(b' ');
        command.extend(quoted(&arg));
    }
    OsString::from_vec(command)
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

    fn command(args: &[&str]) -> String {
        remote_command(args.iter().map(OsString::from))
            .into_string()
            .unwrap()
    }

    #[test]
    fn only_our_own_option_is_left_out() {
        assert_eq!(
            command(&["stat", "--host", "a@b", "-i", "1s", "--", "x"]),
            "steer stat -i 1s -- x"
        );
        assert_eq!(
            command(&["stat", "--host=a@b", "--", "ssh", "--host", "c"]),
            "steer stat -- ssh --host c"
        );
        assert_eq!(
            command(&["stat", "--host", "a@b", "prog", "--host", "c"]),
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
        let line = command(&args).replacen("steer", "printf '%s\\0'", 1);
        let shell = Command::new("sh").arg("-c").arg(line).output().unwrap();
        assert_eq!(
            shell.stdout,
            args.map(|a| format!("{a}\0")).concat().as_bytes()
        );
    }
}
