//! Keeps programs that the recorded program executes under instrumentation.
//!
//! Input: the arguments of an `execve` or `execveat` that the program is about to make. Output: if the file can run under QEMU,
//! the process becomes QEMU running it. Otherwise QEMU makes the call unchanged, which also yields the right error. This works
//! for static programs too: it happens in QEMU's own process and needs no preloaded library.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::caveats::is_elf;
use crate::guest::Guest;
use crate::layout::{ARENAS, ONE_ARENA};

/// Largest nesting of interpreters.
const NESTING: usize = 4;
/// Bytes at the start of a file that identify its type.
const HEAD: usize = 256;

/// Command to run a file: interpreters with their arguments, then the file.
struct ExecPlan {
    program: CString,
    before: Vec<CString>,
    zeroth: CString,
}

/// Replaces the process by QEMU if the file can run under it. Returns only otherwise: the file if it is a program that runs
/// unrecorded.
///
/// # Safety
/// The pointers are those of an `execve` call, in host addresses: two null-terminated arrays of `base`-relative strings.
pub unsafe fn exec(
    wrapper: &[CString],
    base: usize,
    path: &CStr,
    argv: *const usize,
    envp: *const usize,
) -> Option<Vec<u8>> {
    // SAFETY: the caller passes arrays of strings, or null.
    let (arguments, environment) = unsafe { (strings(base, argv), strings(base, envp)) };
    let zeroth = arguments.first().map_or(path, |a| *a).to_owned();
    let Some(plan) = plan(path.to_owned(), zeroth, NESTING) else {
        return is_elf(path).then(|| path.to_bytes().to_vec());
    };
    let name = [c"-0".to_owned(), plan.zeroth, plan.program];
    let (own, mut environment): (Vec<&CStr>, Vec<&CStr>) =
        environment.into_iter().partition(|e| sets_arenas(e));
    let one_arena = CString::new(format!("{ARENAS}={ONE_ARENA}")).ok()?;
    environment.push(&one_arena);
    let own = own.first().map(|own| [c"-E".to_owned(), (*own).to_owned()]);
    let mut command: Vec<*const c_char> = wrapper
        .iter()
        .chain(own.iter().flatten())
        .chain(&name)
        .chain(&plan.before)
        .map(|a| a.as_ptr())
        .collect();
    command.extend(arguments.iter().skip(1).map(|a| a.as_ptr()));
    command.push(std::ptr::null());
    let mut environment: Vec<*const c_char> = environment.iter().map(|e| e.as_ptr()).collect();
    environment.push(std::ptr::null());
    let program = wrapper.first()?;
    // SAFETY: both arrays end with null and their strings live until the call returns, if it does.
    unsafe { libc::execve(program.as_ptr(), command.as_ptr(), environment.as_ptr()) };
    Some(path.to_bytes().to_vec())
}

/// True if a variable of the program is one that QEMU needs with another value.
fn sets_arenas(variable: &CStr) -> bool {
    let name = variable.to_bytes().strip_prefix(ARENAS.as_bytes());
    name.is_some_and(|rest| rest.starts_with(b"="))
}

/// Returns the strings of a null-terminated array in guest memory.
unsafe fn strings<'a>(base: usize, array: *const usize) -> Vec<&'a CStr> {
    let mut found = Vec::new();
    if array as usize == base {
        return found;
    }
    for at in 0.. {
        // SAFETY: `at` does not pass the terminating null, where the loop ends.
        let guest = unsafe { *array.add(at) };
        if guest == 0 {
            break;
        }
        // SAFETY: entries before the null are strings.
        found.push(unsafe { CStr::from_ptr((base + guest) as *const c_char) });
    }
    found
}

fn plan(path: CString, zeroth: CString, nesting: usize) -> Option<ExecPlan> {
    let file = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    let status = file.metadata().ok()?;
    if !status.is_file() || status.permissions().mode() & 0o111 == 0 {
        return None;
    }
    let mut head = [0; HEAD];
    let read = File::open(file).ok()?.read(&mut head).ok()?;
    let head = &head[..read];
    if Guest::own().is_program(head) {
        return Some(ExecPlan {
            program: path,
            before: Vec::new(),
            zeroth,
        });
    }
    let (interpreter, argument) = interpreter(head)?;
    let mut plan = plan(interpreter.clone(), interpreter, nesting.checked_sub(1)?)?;
    plan.before.extend(argument);
    plan.before.push(path);
    Some(plan)
}

/// Returns the interpreter of a script, with its argument if it has one.
fn interpreter(head: &[u8]) -> Option<(CString, Option<CString>)> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|b| *b == b'\n')
        .next()?
        .trim_ascii();
    let end = line
        .iter()
        .position(|b| *b == b' ' || *b == b'\t')
        .unwrap_or(line.len());
    let argument = line[end..].trim_ascii();
    let argument = if argument.is_empty() {
        None
    } else {
        Some(CString::new(argument).ok()?)
    };
    Some((CString::new(&line[..end]).ok()?, argument))
}
