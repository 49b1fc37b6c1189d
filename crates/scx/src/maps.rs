//! Maps and per-task storage of schedulers.
//!
//! A map is known by the address of its variable. Values never move, since schedulers keep pointers to them.

use std::collections::VecDeque;
use std::ffi::c_void;

use rustc_hash::FxHashMap;

use crate::abi::MapShape;
use crate::abi::errno::{E2BIG, EEXIST, ENOENT};
use crate::abi::flags::{MAP_EXIST, MAP_NOEXIST, STORAGE_CREATE};

/// Kinds of maps, by their numbers in the kernel.
mod kind {
    pub const ARRAY: u32 = 2;
    pub const PERCPU_HASH: u32 = 5;
    pub const PERCPU_ARRAY: u32 = 6;
    pub const LRU_PERCPU_HASH: u32 = 10;
    pub const STACK: u32 = 23;
}

/// Value of a map, aligned for any type: one copy, or one per CPU.
struct Value {
    words: Box<[u64]>,
    stride: usize,
}

impl Value {
    fn new(bytes: usize, copies: usize) -> Self {
        let stride = bytes.div_ceil(8).max(1);
        Self {
            words: vec![0; stride * copies].into(),
            stride,
        }
    }

    fn at(&mut self, copy: usize) -> *mut u8 {
        let at = (copy * self.stride).min(self.words.len().saturating_sub(1));
        self.words[at..].as_mut_ptr().cast()
    }

    fn holds(&self, address: usize) -> bool {
        let start = self.words.as_ptr() as usize;
        (start..start + self.words.len() * 8).contains(&address)
    }
}

#[derive(Default)]
struct Map {
    values: FxHashMap<Box<[u8]>, Value>,
    queue: VecDeque<Box<[u8]>>,
}

/// All maps of one scheduler.
#[derive(Default)]
pub struct Maps {
    maps: FxHashMap<usize, Map>,
    cpus: usize,
}

/// Reads `length` bytes of a scheduler's memory.
///
/// # Safety
/// `from` points to that many readable bytes.
unsafe fn bytes(from: *const u8, length: u32) -> Box<[u8]> {
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(from, length as usize) }.into()
}

impl Maps {
    pub fn new(cpus: usize) -> Self {
        Self {
            cpus,
            ..Self::default()
        }
    }

    /// Returns the address of a value; null if the map has none under this key. Array maps have all values from the start.
    ///
    /// # Safety
    /// `key` points to a key of the map.
    pub unsafe fn lookup(
        &mut self,
        map: *mut c_void,
        shape: MapShape,
        key: *const u8,
        copy: usize,
    ) -> *mut u8 {
        // SAFETY: the caller's contract.
        let key = unsafe { bytes(key, shape.key) };
        let array = matches!(shape.kind, kind::ARRAY | kind::PERCPU_ARRAY);
        let copies = self.copies(shape);
        let values = &mut self.maps.entry(map as usize).or_default().values;
        if array {
            let index = key
                .iter()
                .rev()
                .fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
            if index >= u64::from(shape.entries) {
                return std::ptr::null_mut();
            }
            let value = values.entry(key);
            return value
                .or_insert_with(|| Value::new(shape.value as usize, copies))
                .at(copy);
        }
        values
            .get_mut(&key)
            .map_or(std::ptr::null_mut(), |v| v.at(copy))
    }

    fn copies(&self, shape: MapShape) -> usize {
        let each = matches!(
            shape.kind,
            kind::PERCPU_ARRAY | kind::PERCPU_HASH | kind::LRU_PERCPU_HASH
        );
        if each { self.cpus } else { 1 }
    }

    /// Sets a value and returns 0, or a negative error number.
    ///
    /// # Safety
    /// `key` and `value` point to a key and a value of the map.
    pub unsafe fn update(
        &mut self,
        map: *mut c_void,
        shape: MapShape,
        (key, value): (*const u8, *const u8),
        flags: u64,
        copy: usize,
    ) -> i64 {
        let copies = self.copies(shape);
        // SAFETY: the caller's contract.
        let here = unsafe { self.lookup(map, shape, key, copy) };
        let known = !here.is_null();
        let full = self.maps.entry(map as usize).or_default().values.len();
        let refused = match (known, flags) {
            (true, MAP_NOEXIST) => EEXIST,
            (false, MAP_EXIST) => ENOENT,
            (false, _) if full >= shape.entries as usize => E2BIG,
            _ => 0,
        };
        if refused != 0 {
            return -i64::from(refused);
        }
        let here = if known {
            here
        } else {
            // SAFETY: the caller's contract.
            let key = unsafe { bytes(key, shape.key) };
            let values = &mut self.maps.entry(map as usize).or_default().values;
            let new = values.entry(key);
            new.or_insert_with(|| Value::new(shape.value as usize, copies))
                .at(copy)
        };
        // SAFETY: a value of the map has this size, and the caller's is a value.
        unsafe { std::ptr::copy(value, here, shape.value as usize) };
        0
    }

    /// Removes a value and returns 0, or a negative error number.
    ///
    /// # Safety
    /// `key` points to a key of the map.
    pub unsafe fn delete(&mut self, map: *mut c_void, key: *const u8) -> i64 {
        let Some(map) = self.maps.get_mut(&(map as usize)) else {
            return -i64::from(ENOENT);
        };
        let Some(length) = map.values.keys().next().map(|k| k.len() as u32) else {
            return -i64::from(ENOENT);
        };
        // SAFETY: the caller's contract; all keys of a map are equally long.
        let key = unsafe { bytes(key, length) };
        map.values.remove(&key).map_or(-i64::from(ENOENT), |_| 0)
    }

    /// Appends a value to a queue and returns 0, or a negative error number.
    ///
    /// # Safety
    /// `value` points to a value of the map.
    pub unsafe fn push(&mut self, map: *mut c_void, shape: MapShape, value: *const u8) -> i64 {
        let queue = &mut self.maps.entry(map as usize).or_default().queue;
        if queue.len() >= shape.entries as usize {
            return -i64::from(E2BIG);
        }
        // SAFETY: the caller's contract.
        queue.push_back(unsafe { bytes(value, shape.value) });
        0
    }

    /// Copies the next value of a queue or stack, and removes it unless `keep`. Returns 0, or a negative error number.
    ///
    /// # Safety
    /// `value` points to room for a value of the map.
    pub unsafe fn pop(
        &mut self,
        map: *mut c_void,
        shape: MapShape,
        value: *mut u8,
        keep: bool,
    ) -> i64 {
        let queue = &mut self.maps.entry(map as usize).or_default().queue;
        let stack = shape.kind == kind::STACK;
        let next = if stack { queue.back() } else { queue.front() };
        let Some(next) = next else {
            return -i64::from(ENOENT);
        };
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(next.as_ptr(), value, next.len()) };
        if !keep {
            _ = if stack {
                queue.pop_back()
            } else {
                queue.pop_front()
            };
        }
        0
    }

    /// Returns the keys of a map in ascending order, so that runs are repeatable.
    pub fn keys(&mut self, map: *mut c_void, shape: MapShape) -> Vec<Box<[u8]>> {
        if matches!(shape.kind, kind::ARRAY | kind::PERCPU_ARRAY) {
            return (0..shape.entries)
                .map(|i| Box::from(i.to_ne_bytes()))
                .collect();
        }
        let values = self.maps.get(&(map as usize)).map(|m| &m.values);
        let mut keys: Vec<_> = values
            .into_iter()
            .flatten()
            .map(|(k, _)| k.clone())
            .collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the address of an owner's value in a storage map; null if there is none and none is to be made.
    ///
    /// # Safety
    /// `initial` is null or points to a value of the map.
    pub unsafe fn storage(
        &mut self,
        map: *mut c_void,
        shape: MapShape,
        owner: *const c_void,
        initial: *const u8,
        flags: u64,
    ) -> *mut u8 {
        let key: Box<[u8]> = (owner as usize).to_ne_bytes().into();
        let values = &mut self.maps.entry(map as usize).or_default().values;
        if !values.contains_key(&key) {
            if flags & STORAGE_CREATE == 0 {
                return std::ptr::null_mut();
            }
            let mut value = Value::new(shape.value as usize, 1);
            if !initial.is_null() {
                // SAFETY: the caller's contract.
                unsafe { std::ptr::copy(initial, value.at(0), shape.value as usize) };
            }
            values.insert(key.clone(), value);
        }
        values
            .get_mut(&key)
            .map_or(std::ptr::null_mut(), |v| v.at(0))
    }

    /// Removes an owner's value from a storage map and returns 0, or a negative error number.
    pub fn storage_delete(&mut self, map: *mut c_void, owner: *const c_void) -> i64 {
        let key = (owner as usize).to_ne_bytes();
        let map = self.maps.get_mut(&(map as usize));
        let removed = map.and_then(|map| map.values.remove(&key[..]));
        removed.map_or(-i64::from(ENOENT), |_| 0)
    }

    /// Removes all values of an owner, which exits.
    pub fn forget(&mut self, owner: *const c_void) {
        let key = (owner as usize).to_ne_bytes();
        for map in self.maps.values_mut() {
            map.values.remove(&key[..]);
        }
    }

    /// Returns map, key and value that contain an address; `None` if no map does.
    pub fn around(&mut self, address: usize) -> Option<(usize, Box<[u8]>, *mut u8)> {
        self.maps.iter_mut().find_map(|(map, m)| {
            let mut values = m.values.iter_mut();
            values
                .find(|(_, value)| value.holds(address))
                .map(|(key, value)| (*map, key.clone(), value.at(0)))
        })
    }
}
