//! A roll that is not inside any kernel.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use countersteer_core::units::Nanos;
use countersteer_host::counters::{Family, Hear, Heard, Roll};

/// A number that no thread has.
pub const CHILD: u32 = 0x7fff_fff0;

/// What families have run more each time that they are asked for.
pub const MORE: Nanos = Nanos::from_millis(1000);

/// How a roll behaves.
#[derive(Clone, Copy, Default)]
pub struct Manners {
    /// It tells once, of who entered first: of the birth of [`CHILD`], of that one's program and end, and of the first one's end.
    pub tells: bool,
    /// So many times it finds threads that are just ending.
    pub leaving: u64,
    /// From when something enters on so much was lost.
    pub loses: u64,
}

/// A roll of families that run whenever they are asked for.
struct FakeRoll {
    manners: Manners,
    entered: Vec<u32>,
    asked: u64,
    file: File,
}

/// A roll of those manners.
pub fn fake(manners: Manners) -> Result<Box<dyn Roll>, String> {
    let file = File::open("/dev/null").map_err(|e| e.to_string())?;
    Ok(Box::new(FakeRoll {
        manners,
        entered: Vec::new(),
        asked: 0,
        file,
    }))
}

impl Roll for FakeRoll {
    fn enter(&mut self, tid: u32, _: u32) -> io::Result<bool> {
        self.entered.push(tid);
        Ok(true)
    }

    fn hear(&mut self, hear: Hear<'_>) {
        let Some(tid) = self
            .entered
            .first()
            .filter(|_| std::mem::take(&mut self.manners.tells))
        else {
            return;
        };
        let at = Nanos(1);
        hear(
            at,
            CHILD,
            Heard::Born {
                pid: CHILD,
                parent: *tid,
            },
        );
        hear(at, CHILD, Heard::Starts(*b"program\0\0\0\0\0\0\0\0\0"));
        hear(at, CHILD, Heard::Ended);
        hear(at, *tid, Heard::Ended);
    }

    fn families(&mut self, wanted: &[u32], take: &mut dyn FnMut(u32, Family)) -> io::Result<()> {
        self.asked += 1;
        let leaving = u64::from(self.asked <= self.manners.leaving);
        wanted.iter().for_each(|family| {
            take(
                *family,
                Family {
                    ran: Nanos(self.asked * MORE.0),
                    leaving,
                },
            )
        });
        Ok(())
    }

    fn forget(&mut self, _: u32) {}

    fn lost(&self) -> u64 {
        if self.entered.is_empty() {
            0
        } else {
            self.manners.loses
        }
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
