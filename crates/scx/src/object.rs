//! A compiled scheduler in memory: its functions, its variables, and the table of the simulator's functions.

use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::abi::{Ops, SIZES};
use crate::error::ScxError;
use crate::layout::{Declared, SchedulerLayout};
use crate::library::Library;

/// Loaded scheduler with global variables of its own.
pub struct Object {
    loaded: Loaded,
    /// Open as long as the scheduler is loaded: the loader takes two files with one path for the same.
    _file: File,
    pub ops: *const Ops,
    pub host: *mut c_void,
    pub root: *mut c_void,
    /// Variables with their sizes in bytes.
    variables: Vec<(String, usize)>,
    layout: SchedulerLayout,
    /// Maps by the addresses of their variables.
    maps: Vec<(usize, Declared)>,
    /// Difference of addresses in memory and in the file.
    base: usize,
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
        // The loader gives a second copy of variables only to another file. The file has no name that would stay if this process
        // were killed.
        let mut file = tempfile::tempfile().map_err(|e| failed(e.to_string()))?;
        file.write_all(&library.code)
            .map_err(|e| failed(e.to_string()))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: the file is the one that this crate has compiled; like any plug-in, it runs with the rights of this process.
        let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
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
        let lacking = parsed
            .dynamic_symbols()
            .filter_map(|s| s.name().ok().filter(|_| s.is_undefined()))
            .filter(|name| name.starts_with("CONFIG_"));
        let lacking = lacking.collect::<Vec<_>>().join(", ");
        if !lacking.is_empty() {
            return Err(ScxError::Lacking {
                path: library.source.clone(),
                names: lacking,
            });
        }
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
        if sizes[1] < size_of::<crate::abi::TaskStruct>() as u64 - 8 || sizes[2..] != wanted[1..] {
            return Err(failed(format!(
                "its structures have the sizes {sizes:?}, not {SIZES:?}"
            )));
        }
        let anchor = parsed.dynamic_symbols().find(|s| s.name() == Ok("sim"));
        let base = host as usize - anchor.map_or(0, |anchor| anchor.address() as usize);
        if let Some(text) = parsed.section_by_name(".text") {
            let start = base + text.address() as usize;
            crate::division::define((start, start + text.size() as usize));
        }
        let layout = SchedulerLayout::read(&library.code).map_err(failed)?;
        let maps = maps(&layout, &parsed, base);
        Ok(Self {
            ops: ops.cast(),
            host,
            root,
            variables,
            layout,
            maps,
            base,
            loaded,
            _file: file,
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

    /// Types of the scheduler's variables and structures.
    pub fn layout(&self) -> &SchedulerLayout {
        &self.layout
    }

    /// Maps of the scheduler by the addresses of their variables.
    pub fn maps(&self) -> impl Iterator<Item = (usize, Declared)> + '_ {
        self.maps.iter().copied()
    }

    /// Sets an integer of the scheduler: a variable, or a part of one, as in `tables[3].cpus[1]`. Returns false if there is none
    /// of this name.
    ///
    /// # Errors
    /// Fails if the variable is no integer.
    pub fn set(&self, source: &Path, path: &str, value: i128) -> Result<bool, ScxError> {
        let Some(spot) = self.layout.variable(path) else {
            return Ok(false);
        };
        if !matches!(spot.bytes, 1 | 2 | 4 | 8) {
            return Err(ScxError::BadParameter {
                path: source.to_owned(),
                why: format!(
                    "`{path}` has {} bytes; only integers can be set",
                    spot.bytes
                ),
            });
        }
        self.write(self.base + spot.at, spot.bytes, value);
        Ok(true)
    }

    /// True if the scheduler has an integer that is zero.
    pub fn is_zero(&self, path: &str) -> bool {
        let spot = self.layout.variable(path);
        let spot = spot.filter(|spot| matches!(spot.bytes, 1 | 2 | 4 | 8));
        spot.is_some_and(|spot| {
            let at: *const u8 = std::ptr::with_exposed_provenance(self.base + spot.at);
            // SAFETY: the variable has this size.
            let bytes = unsafe { std::slice::from_raw_parts(at, spot.bytes) };
            bytes.iter().all(|byte| *byte == 0)
        })
    }

    /// Sets an integer of the scheduler where the scheduler has it.
    pub fn put(&self, path: &str, value: usize) {
        let spot = self.layout.variable(path);
        if let Some(spot) = spot.filter(|spot| matches!(spot.bytes, 1 | 2 | 4 | 8)) {
            self.write(self.base + spot.at, spot.bytes, value as i128);
        }
    }

    /// Sets the first elements of an array of integers, if the scheduler has one of this name.
    pub fn put_all(&self, name: &str, values: impl IntoIterator<Item = usize>) {
        let elements = self.layout.count(name);
        for (index, value) in values.into_iter().take(elements).enumerate() {
            self.put(&format!("{name}[{index}]"), value);
        }
    }

    fn write(&self, at: usize, bytes: usize, value: i128) {
        let from = value.to_ne_bytes();
        let at = std::ptr::with_exposed_provenance_mut(at);
        // SAFETY: the variable has this size and is writable, since schedulers are compiled without `const`.
        unsafe { std::ptr::copy(from.as_ptr(), at, bytes) };
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

/// Maps of a scheduler by the addresses of their variables in memory.
fn maps(layout: &SchedulerLayout, file: &object::File<'_>, base: usize) -> Vec<(usize, Declared)> {
    // The type does not tell how many inner maps a map of maps has; the size of the variable does.
    let size = |at: usize| {
        let symbol = file
            .symbols()
            .find(|s| s.address() == at as u64 && s.size() > 0);
        symbol.map_or(0, |symbol| symbol.size() as usize)
    };
    let place = |(at, mut map): (usize, Declared)| {
        let of = |(offset, _): (usize, usize)| {
            let room = size(at).saturating_sub(offset);
            (offset, room / size_of::<usize>())
        };
        map.inner = map.inner.map(of);
        (base + at, map)
    };
    layout.maps().map(place).collect()
}
