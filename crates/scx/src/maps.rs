//! Maps and per-task storage of schedulers.
//!
//! A map is known by the address of its variable. Values never move, since schedulers keep pointers to them.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;

use rustc_hash::FxHashMap;

use crate::abi::MapShape;
use crate::abi::errno::{E2BIG, EEXIST, ENOENT};
use crate::abi::flags::{MAP_EXIST, MAP_NOEXIST, STORAGE_CREATE};
use crate::layout::Declared;

/// Kinds of maps, by their numbers in the kernel.
mod kind {
    pub const ARRAY: u32 = 2;
    pub const PERCPU_HASH: u32 = 5;
    pub const PERCPU_ARRAY: u32 = 6;
    pub const LRU_PERCPU_HASH: u32 = 10;
    pub const ARRAY_OF_MAPS: u32 = 12;
    pub const STACK: u32 = 23;
}

/// Memory that is aligned for any type of a scheduler.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct AlignedLine {
    _words: [u64; 8],
}

/// Zeroed memory of a number of bytes.
fn lines(bytes: usize) -> Box<[AlignedLine]> {
    vec![AlignedLine { _words: [0; 8] }; bytes.div_ceil(size_of::<AlignedLine>()).max(1)].into()
}

/// Value of a map: one copy, or one per CPU.
struct MapValue {
    lines: Box<[AlignedLine]>,
    stride: usize,
}

impl MapValue {
    fn new(bytes: usize, copies: usize) -> Self {
        let stride = bytes.div_ceil(size_of::<AlignedLine>()).max(1);
        Self {
            lines: lines(stride * copies * size_of::<AlignedLine>()),
            stride,
        }
    }

    fn at(&mut self, copy: usize) -> *mut u8 {
        let at = (copy * self.stride).min(self.lines.len().saturating_sub(1));
        self.lines[at..].as_mut_ptr().cast()
    }

    fn holds(&self, address: usize) -> bool {
        let start = self.lines.as_ptr() as usize;
        (start..start + size_of_val(&*self.lines)).contains(&address)
    }
}

#[derive(Default)]
struct Map {
    values: FxHashMap<Box<[u8]>, MapValue>,
    queue: VecDeque<Box<[u8]>>,
}

/// All maps of one scheduler.
/// Size of a page of an arena.
const PAGE_BYTES: usize = 4096;
/// Largest allocation of an arena: 1 GiB.
const MOST_PAGES: usize = 1 << 18;

#[repr(C, align(4096))]
struct ArenaPage([u8; PAGE_BYTES]);

/// Allocation of an arena.
struct ArenaPages {
    memory: Box<[ArenaPage]>,
    /// Number of pages that were not returned.
    left: usize,
}

#[derive(Default)]
pub struct Maps {
    maps: FxHashMap<usize, Map>,
    /// Maps that are variables of the scheduler.
    declared: FxHashMap<usize, Declared>,
    /// Memory of arenas by its address.
    pages: BTreeMap<usize, ArenaPages>,
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

/// Number that a key of an array stands for.
fn number(key: &[u8]) -> u64 {
    let bytes = key.iter().rev();
    bytes.fold(0, |n, byte| n << 8 | u64::from(*byte))
}

impl Maps {
    pub fn new(cpus: usize, declared: impl Iterator<Item = (usize, Declared)>) -> Self {
        Self {
            cpus,
            declared: declared.collect(),
            ..Self::default()
        }
    }

    /// Returns the shape of a map: the caller's, or that of the map's variable if the caller takes any map. `None` if it is
    /// neither.
    pub fn shape(&self, map: *mut c_void, shape: MapShape) -> Option<MapShape> {
        if shape.kind != 0 {
            return Some(shape);
        }
        let declared = self.declared.get(&(map as usize))?;
        Some(MapShape {
            kind: declared.kind,
            key: declared.key,
            value: declared.value,
            entries: declared.entries,
        })
    }

    /// Allocates zeroed pages of an arena; null if there are too many for an arena.
    pub fn allocate(&mut self, pages: usize) -> *mut c_void {
        let mut memory = Vec::new();
        if !(1..=MOST_PAGES).contains(&pages) || memory.try_reserve_exact(pages).is_err() {
            return std::ptr::null_mut();
        }
        memory.resize_with(pages, || ArenaPage([0; PAGE_BYTES]));
        let mut memory = memory.into_boxed_slice();
        let at = memory.as_mut_ptr();
        let held = ArenaPages {
            memory,
            left: pages,
        };
        self.pages.insert(at as usize, held);
        at.cast()
    }

    /// Takes pages of an arena back. Schedulers may return an allocation in parts; its memory is free after the last one.
    pub fn release(&mut self, at: *mut c_void, pages: usize) {
        let before = self.pages.range_mut(..=at as usize).next_back();
        let Some((start, held)) = before else { return };
        if (at as usize - start) / PAGE_BYTES >= held.memory.len() {
            return;
        }
        held.left = held.left.saturating_sub(pages);
        let (start, left) = (*start, held.left);
        if left == 0 {
            self.pages.remove(&start);
        }
    }

    /// Returns the inner map at an index of a map of maps; null if there is none.
    ///
    /// # Safety
    /// `map` is a variable of the scheduler, and `key` points to a key of it.
    unsafe fn inner(&self, map: *mut c_void, shape: MapShape, key: *const u8) -> *mut u8 {
        let declared = self.declared.get(&(map as usize));
        let Some((offset, count)) = declared.and_then(|declared| declared.inner) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the caller's contract.
        let index = number(&unsafe { bytes(key, shape.key) });
        if index >= (count as u64).min(u64::from(shape.entries)) {
            return std::ptr::null_mut();
        }
        let place = offset + index as usize * size_of::<*mut u8>();
        // SAFETY: the variable has this many addresses of maps at this offset.
        unsafe { map.cast::<u8>().add(place).cast::<*mut u8>().read() }
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
        if shape.kind == kind::ARRAY_OF_MAPS {
            // SAFETY: the caller's contract.
            return unsafe { self.inner(map, shape, key) };
        }
        // SAFETY: the caller's contract.
        let key = unsafe { bytes(key, shape.key) };
        let array = matches!(shape.kind, kind::ARRAY | kind::PERCPU_ARRAY);
        let copies = self.copies(shape);
        let values = &mut self.maps.entry(map as usize).or_default().values;
        if array {
            if number(&key) >= u64::from(shape.entries) {
                return std::ptr::null_mut();
            }
            let value = values.entry(key);
            return value
                .or_insert_with(|| MapValue::new(shape.value as usize, copies))
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
            new.or_insert_with(|| MapValue::new(shape.value as usize, copies))
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
            let mut value = MapValue::new(shape.value as usize, 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_an_arena_is_free_after_its_last_page_and_has_a_limit() {
        let mut maps = Maps::default();
        let at = maps.allocate(3);
        assert_eq!(at as usize % PAGE_BYTES, 0);
        maps.release(at, 1);
        maps.release(at.wrapping_byte_add(2 * PAGE_BYTES), 1);
        assert_eq!(maps.pages.len(), 1);
        maps.release(at.wrapping_byte_add(PAGE_BYTES), 1);
        assert!(maps.pages.is_empty());
        assert!(maps.allocate(usize::MAX).is_null() && maps.allocate(0).is_null());
    }
}
