//! A compiled scheduler in memory: its functions, its variables, and the table of the simulator's functions.

use std::ffi::c_void;
use std::io::Write;
use std::path::Path;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::abi::{Ops, SIZES};
use crate::error::ScxError;
use crate::library::Library;

/// Loaded scheduler with global variables of its own.
pub struct Object {
    loaded: Loaded,
    pub ops: *const Ops,
    pub host: *mut c_void,
    pub root: *mut c_void,
    /// Variables with their sizes in bytes.
    variables: Vec<(String, usize)>,
}

impl Object {
    /// Loads a copy of a compiled scheduler.
    ///
    /// # Errors
    /// Fails if the file cannot be loaded, or if its structures differ from the simulator's.
    pub fn load(library: &Library) -> Result<Self, ScxError> {
        let failed = |why: String| ScxError::NotLoaded {
            path: library.source.clone(),
            why,
        };
        // The loader gives a second copy of variables only to another file.
        let mut file = tempfile::NamedTempFile::new().map_err(|e| failed(e.to_string()))?;
        file.write_all(&library.code)
            .map_err(|e| failed(e.to_string()))?;
        // SAFETY: the file is the one that this crate has compiled; like any plug-in, it runs with the rights of this process.
        let loaded = unsafe { Loaded::open(Some(file.path()), RTLD_NOW | RTLD_LOCAL) };
        let loaded = loaded.map_err(|e| failed(e.to_string()))?;
        let at = |name: &str| {
            // SAFETY: only the address is used.
            let symbol = unsafe { loaded.get::<*mut c_void>(name.as_bytes()) };
            let missing = |_| {
                failed(format!(
                    "it defines no `{name}`: is it a scheduler of sched_ext?"
                ))
            };
            symbol.map(|s| s.as_raw_ptr()).map_err(missing)
        };
        let parsed =
            object::File::parse(library.code.as_slice()).map_err(|e| failed(e.to_string()))?;
        let variables = parsed.dynamic_symbols().filter(|s| s.is_definition());
        let variables: Vec<(String, usize)> = variables
            .filter_map(|s| Some((s.name().ok()?.to_owned(), s.size() as usize)))
            .collect();
        // A scheduler gives its table any name; nothing else has this size.
        let is_table = |(_, size): &&(String, usize)| *size == size_of::<Ops>();
        let table = variables.iter().find(is_table);
        let table = table.map_or("table of functions", |(name, _)| name.as_str());
        let (ops, host, root) = (at(table)?, at("sim")?, at("sim_root")?);
        let sizes = at("sim_sizes")?.cast::<u64>();
        // SAFETY: `sim_sizes` of `runtime.c` has one more entry than `SIZES`.
        let sizes = unsafe { std::slice::from_raw_parts(sizes, SIZES.len() + 1) };
        let mut wanted = SIZES.map(|size| size as u64);
        // The task's own part ends where the part begins that the simulator leaves at zero.
        wanted[0] = sizes[1];
        if sizes[1] < size_of::<crate::abi::Task>() as u64 - 8 || sizes[2..] != wanted[1..] {
            return Err(failed(format!(
                "its structures have the sizes {sizes:?}, not {SIZES:?}"
            )));
        }
        let text = parsed.section_by_name(".text");
        let anchor = parsed.dynamic_symbols().find(|s| s.name() == Ok("sim"));
        if let (Some(text), Some(anchor)) = (text, anchor) {
            let moved = host as usize - anchor.address() as usize;
            let start = moved + text.address() as usize;
            crate::division::define((start, start + text.size() as usize));
        }
        Ok(Self {
            ops: ops.cast(),
            host,
            root,
            variables,
            loaded,
        })
    }

    /// Size of the kernel's `task_struct` in bytes, as the scheduler has it.
    pub fn task_bytes(&self) -> usize {
        // SAFETY: `sim_sizes` was found when the object was loaded.
        unsafe { self.loaded.get::<*mut c_void>(b"sim_sizes") }.map_or(0, |s| {
            // SAFETY: the first entry of the array.
            unsafe { *s.as_raw_ptr().cast::<u64>() as usize }
        })
    }

    /// Address and size of a global variable or function; `None` if there is none of this name.
    fn variable(&self, name: &str) -> Option<(*mut u8, usize)> {
        let (_, size) = self.variables.iter().find(|(known, _)| known == name)?;
        // SAFETY: only the address is used.
        let symbol = unsafe { self.loaded.get::<*mut c_void>(name.as_bytes()) }.ok()?;
        Some((symbol.as_raw_ptr().cast(), *size))
    }

    /// Sets an integer variable of the scheduler. Returns false if there is none of this name.
    ///
    /// # Errors
    /// Fails if the variable is no integer.
    pub fn set(&self, source: &Path, name: &str, value: i128) -> Result<bool, ScxError> {
        let Some((at, size)) = self.variable(name) else {
            return Ok(false);
        };
        if !matches!(size, 1 | 2 | 4 | 8) {
            return Err(ScxError::BadParameter {
                path: source.to_owned(),
                why: format!("`{name}` has {size} bytes; only integers can be set"),
            });
        }
        let bytes = value.to_ne_bytes();
        // SAFETY: the variable has this size and is writable, since schedulers are compiled without `const`.
        unsafe { std::ptr::copy(bytes.as_ptr(), at, size) };
        Ok(true)
    }

    /// Sets the first elements of an array of 64-bit integers, if the scheduler has one of this name.
    pub fn set_all(&self, name: &str, values: &[u64]) {
        let Some((at, size)) = self.variable(name) else {
            return;
        };
        let count = values.len().min(size / size_of::<u64>());
        // SAFETY: the array has at least that many elements, and is writable.
        unsafe { std::ptr::copy(values.as_ptr(), at.cast(), count) };
    }

    /// Function of the scheduler that its user-space half calls with a structure; `None` if there is none of this name.
    pub fn entry(&self, name: &str) -> Option<unsafe extern "C" fn(*mut c_void) -> i32> {
        let (at, _) = self.variable(name)?;
        // SAFETY: programs of the kind `syscall` have this type.
        Some(unsafe {
            std::mem::transmute::<*mut u8, unsafe extern "C" fn(*mut c_void) -> i32>(at)
        })
    }

    /// Names of the integers that can be set.
    pub fn integers(&self) -> impl Iterator<Item = &str> {
        let integers = self
            .variables
            .iter()
            .filter(|(_, size)| matches!(size, 1 | 2 | 4 | 8));
        integers.map(|(name, _)| name.as_str())
    }
}
