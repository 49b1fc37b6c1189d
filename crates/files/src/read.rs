//! Files of others: regular ones only, and no more of them than the limit.
//!
//! Input: a path and a limit. Output: the open file, its bytes or its text. A named pipe would wait for its other end and a device may
//! have no end, so both are refused before they are opened. What the shell has opened already (`/dev/stdin`, the `/dev/fd/63` of `<(...)`) is
//! read as it comes, within the same limit.
//!
//! Refusals are errors of kind [`io::ErrorKind::InvalidData`], whose text goes behind "cannot read FILE: ".

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::name;

/// Bytes of a text at most: a machine, a workload, a profile, rules, a list of events. The longest that are shipped have 75 kB,
/// and lists of vendors are longer. TOML has a lower limit, where it is parsed.
pub const MOST_TEXT: u64 = 4 << 20;
/// Bytes of a manifest at most: it holds the profiles of all programs.
pub const MOST_MANIFEST: u64 = 64 << 20;
/// Bytes of a recording of another tool, or of a program, at most: they are read whole.
pub const MOST_RECORDING: u64 = 1 << 30;

/// Opens a regular file, whose name may be [`crate::name::escaped`].
///
/// # Errors
/// There is none; what is there is of another kind; no permission.
pub fn open(path: &Path) -> io::Result<File> {
    let path = &*name::path(path);
    if is_inherited(path) {
        return File::open(path);
    }
    // Opening alone can wait (pipes) or act (tapes, watchdogs).
    only_regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    // Another process may have exchanged it meanwhile.
    only_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file of up to `most` bytes.
///
/// # Errors
/// Those of [`open`]; it is larger.
pub fn open_within(path: &Path, most: u64) -> io::Result<File> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_large(&format!("it has {length}"), most));
    }
    Ok(file)
}

/// The bytes of a regular file.
///
/// # Errors
/// Those of [`open_within`]; reading fails.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_within(path, most)?;
    // Vectors that grow have up to twice the memory that they need.
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(length + 1);
    append(file, &mut bytes, most)?;
    Ok(bytes)
}

/// Reads a stream to its end, behind the bytes that were read already.
///
/// # Errors
/// More bytes than `most` in all; reading fails.
pub fn append(stream: impl Read, bytes: &mut Vec<u8>, most: u64) -> io::Result<()> {
    let left = most.saturating_sub(bytes.len() as u64);
    stream.take(left + 1).read_to_end(bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large("there are more", most));
    }
    Ok(())
}

/// The text in a regular file of up to [`MOST_TEXT`] bytes.
///
/// # Errors
/// Those of [`bytes`]; no UTF-8.
pub fn text(path: &Path) -> io::Result<String> {
    text_of(bytes(path, MOST_TEXT)?)
}

/// The text that bytes are.
///
/// # Errors
/// No UTF-8.
pub fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| refused("this is no text file"))
}

/// A refusal with its reason.
#[must_use]
pub fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn too_large(found: &str, most: u64) -> io::Error {
    refused(format!(
        "{found} bytes, and no file of this kind has more than {most}"
    ))
}

fn only_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let name = name_of(kind);
    Err(refused(format!(
        "it is {name}, and only regular files are read"
    )))
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// True for a descriptor of this process by its path.
fn is_inherited(path: &Path) -> bool {
    path == Path::new("/dev/stdin") || name::is_descriptor(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    fn why(path: &Path) -> String {
        let error = text(path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        error.to_string()
    }

    #[test]
    fn only_regular_files_are_opened_and_others_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let roundabout = Path::new("/proc/self/fd/../root").join(pipe.strip_prefix("/").unwrap());
        let cases = [
            (pipe.as_path(), "a named pipe"),
            (&link, "a named pipe"),
            (&roundabout, "a named pipe"),
            (&socket, "a socket"),
            (dir.path(), "a folder"),
            (Path::new("/dev/zero"), "a device"),
        ];
        for (path, kind) in cases {
            assert!(why(path).contains(kind), "{}", path.display());
        }
    }

    #[test]
    fn a_file_beyond_the_limit_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sparse");
        File::create(&file).unwrap().set_len(5 << 30).unwrap();
        assert!(why(&file).contains("5368709120 bytes"), "{}", why(&file));
        File::create(&file).unwrap().set_len(MOST_TEXT).unwrap();
        assert_eq!(text(&file).unwrap().len() as u64, MOST_TEXT);
        let mut bytes = b"abc".to_vec();
        append(&b"de"[..], &mut bytes, 5).unwrap();
        assert_eq!(bytes, b"abcde");
        assert!(append(io::repeat(0), &mut bytes, 1000).is_err());
        assert_eq!(bytes.len(), 1001);
    }

    #[test]
    fn what_the_shell_has_opened_is_read() {
        let script = "exec 3< <(echo hello)";
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, script.as_bytes()).unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(text(Path::new(&path)).unwrap(), script);
    }
}
