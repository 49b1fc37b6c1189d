//! Helpers of maps, of storage and of timers.

use std::ffi::c_void;
use std::ptr;

use super::of;
use crate::abi::MapShape;
use crate::abi::errno::EINVAL;
use crate::state::{BpfTimer, Inside};
use crate::world::World;

pub(super) unsafe extern "C" fn map_lookup(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    key: *const u8,
    cpu: i32,
) -> *mut u8 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let Some(shape) = world.shape(map, shape) else {
        return ptr::null_mut();
    };
    let copy = usize::try_from(cpu).unwrap_or(world.state().this_cpu);
    if copy >= world.state().rqs.len() {
        return ptr::null_mut();
    }
    // SAFETY: the scheduler's key, of the map's size.
    unsafe { world.maps().lookup(map, shape, key, copy) }
}

pub(super) unsafe extern "C" fn map_update(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    key: *const u8,
    value: *const u8,
    how: u64,
) -> i64 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let Some(shape) = world.shape(map, shape) else {
        return -i64::from(EINVAL);
    };
    let copy = world.state().this_cpu;
    // SAFETY: the scheduler's key and value, of the map's sizes.
    unsafe { world.maps().update(map, shape, (key, value), how, copy) }
}

pub(super) unsafe extern "C" fn map_delete(
    world: *mut c_void,
    map: *mut c_void,
    key: *const u8,
) -> i64 {
    // SAFETY: the scheduler's key, of the map's size.
    unsafe { of(world).maps().delete(map, key) }
}

pub(super) unsafe extern "C" fn map_push(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    value: *const u8,
    _: u64,
) -> i64 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let Some(shape) = world.shape(map, shape) else {
        return -i64::from(EINVAL);
    };
    // SAFETY: the scheduler's value, of the map's size.
    unsafe { world.maps().push(map, shape, value) }
}

pub(super) unsafe extern "C" fn map_pop(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    value: *mut u8,
    keep: bool,
) -> i64 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let Some(shape) = world.shape(map, shape) else {
        return -i64::from(EINVAL);
    };
    // SAFETY: the scheduler's room for a value, of the map's size.
    unsafe { world.maps().pop(map, shape, value, keep) }
}

/// Function that a scheduler wants called for each value of a map, and for a timer.
type MapCallback = unsafe extern "C" fn(*mut c_void, *const u8, *mut u8, *mut c_void) -> i64;

pub(super) unsafe extern "C" fn map_each(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    callback: *mut c_void,
    context: *mut c_void,
) -> i64 {
    // SAFETY: the world comes from the table, and the callback has this type by the rules of `bpf_for_each_map_elem`.
    let (world, callback) = unsafe {
        (
            of(world),
            std::mem::transmute::<*mut c_void, MapCallback>(callback),
        )
    };
    let Some(shape) = world.shape(map, shape) else {
        return -i64::from(EINVAL);
    };
    let copy = world.state().this_cpu;
    let keys = world.maps().keys(map, shape);
    let mut done = 0;
    for key in &keys {
        // SAFETY: a key of this map.
        let value = unsafe { world.maps().lookup(map, shape, key.as_ptr(), copy) };
        done += 1;
        // SAFETY: arguments as the callback's type wants them.
        if !value.is_null() && unsafe { callback(map, key.as_ptr(), value, context) } != 0 {
            break;
        }
    }
    done
}

pub(super) unsafe extern "C" fn storage(
    world: *mut c_void,
    map: *mut c_void,
    shape: MapShape,
    owner: *const c_void,
    initial: *const u8,
    how: u64,
) -> *mut u8 {
    // SAFETY: the world comes from the table.
    let world = unsafe { of(world) };
    let Some(shape) = world.shape(map, shape) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the scheduler's initial value, of the map's size.
    unsafe { world.maps().storage(map, shape, owner, initial, how) }
}

pub(super) unsafe extern "C" fn storage_delete(
    world: *mut c_void,
    map: *mut c_void,
    owner: *const c_void,
) -> i64 {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.maps().storage_delete(map, owner)
}

pub(super) unsafe extern "C" fn arena_alloc(world: *mut c_void, pages: u64) -> *mut c_void {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.maps().allocate(pages as usize)
}

pub(super) unsafe extern "C" fn arena_free(world: *mut c_void, at: *mut c_void, pages: u64) {
    // SAFETY: the world comes from the table.
    unsafe { of(world) }.maps().release(at, pages as usize);
}

pub(super) unsafe extern "C" fn timer_set(
    world: *mut c_void,
    timer: *mut c_void,
    callback: *mut c_void,
) -> i64 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let timer = state.timers.entry(timer as usize).or_insert(BpfTimer {
        callback: 0,
        due: None,
    });
    timer.callback = callback as usize;
    0
}

/// Flag of `bpf_timer_start` for a point of time instead of a duration.
const TIMER_ABSOLUTE: u64 = 1;

pub(super) unsafe extern "C" fn timer_start(
    world: *mut c_void,
    timer: *mut c_void,
    nanoseconds: u64,
    how: u64,
) -> i64 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let state = &mut *state;
    let Some(known) = state.timers.get_mut(&(timer as usize)) else {
        return -i64::from(EINVAL);
    };
    state.started_timers += 1;
    let start = if how & TIMER_ABSOLUTE != 0 {
        0
    } else {
        state.now
    };
    let due = ((start + nanoseconds).max(state.now), state.started_timers);
    if let Some(before) = known.due.replace(due) {
        state.due.remove(&before);
    }
    state.due.insert(due, timer as usize);
    0
}

pub(super) unsafe extern "C" fn timer_cancel(world: *mut c_void, timer: *mut c_void) -> i64 {
    // SAFETY: the world comes from the table.
    let mut state = unsafe { of(world) }.state();
    let state = &mut *state;
    let known = state.timers.get_mut(&(timer as usize));
    let due = known.and_then(|timer| timer.due.take());
    i64::from(due.is_some_and(|due| state.due.remove(&due).is_some()))
}

impl World {
    /// Returns the shape of a map; ends the simulation if it is not known.
    fn shape(&self, map: *mut c_void, shape: MapShape) -> Option<MapShape> {
        let known = self.maps().shape(map, shape);
        if known.is_none() {
            let why = "it uses a map that is no variable of its own: maps that user space makes are not simulated";
            self.state().fail(why);
        }
        known
    }

    /// Calls the callbacks of all timers that are due. Timers run on the first CPU.
    pub fn fire_timers(&self) {
        loop {
            let (address, callback) = {
                let mut state = self.state();
                let state = &mut *state;
                let Some((&due, &address)) = state.due.first_key_value() else {
                    return;
                };
                if due.0 > state.now {
                    return;
                }
                state.due.remove(&due);
                let Some(timer) = state.timers.get_mut(&address) else {
                    continue;
                };
                timer.due = None;
                (address, timer.callback)
            };
            let around = self.maps().around(address);
            let Some((map, key, value)) = around.filter(|_| callback != 0) else {
                continue;
            };
            // SAFETY: the scheduler has set this callback for the timer; by the rules of `bpf_timer_set_callback`, it takes map,
            // key and value.
            let f = unsafe {
                std::mem::transmute::<*mut c_void, MapCallback>(ptr::with_exposed_provenance_mut(
                    callback,
                ))
            };
            // SAFETY: as above.
            self.call(0, Inside::Other, |_| unsafe {
                f(
                    ptr::with_exposed_provenance_mut(map),
                    key.as_ptr(),
                    value,
                    ptr::null_mut(),
                )
            });
        }
    }
}
