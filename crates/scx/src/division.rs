//! Division by zero in a scheduler's code, as BPF defines it: the quotient is 0, and the remainder is the dividend.
//!
//! Processors for 64-bit Arm divide like that. x86-64 raises an exception, which the kernel turns into a signal; the handler
//! here sets the results and goes on behind the instruction. Signals from other code get the default action.

#[cfg(not(target_arch = "x86_64"))]
pub fn define(_code: (usize, usize)) {}

#[cfg(target_arch = "x86_64")]
pub use x86::define;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::ffi::{c_int, c_void};
    use std::mem::zeroed;
    use std::ptr::null_mut;
    use std::sync::Once;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    /// Most schedulers that are loaded at a time and whose divisions are defined.
    const MOST: usize = 1024;
    /// Start and end address of the code of each loaded scheduler; zero in free places.
    static CODE: [(AtomicUsize, AtomicUsize); MOST] =
        [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MOST];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static INSTALLED: Once = Once::new();
    /// Longest instruction in bytes.
    const LONGEST: usize = 15;

    /// Defines divisions by zero in code between two addresses, from now on. Later code takes the place of the earliest.
    pub fn define((start, end): (usize, usize)) {
        let (from, to) = &CODE[NEXT.fetch_add(1, Ordering::Relaxed) % MOST];
        to.store(end, Ordering::Relaxed);
        from.store(start, Ordering::Release);
        INSTALLED.call_once(|| {
            // SAFETY: the handler only reads atomics, decodes an instruction and changes the interrupted registers.
            unsafe {
                let mut action: libc::sigaction = zeroed();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
                libc::sigaction(libc::SIGFPE, &raw const action, null_mut());
            }
        });
    }

    fn is_known(address: usize) -> bool {
        let within = |(from, to): &(AtomicUsize, AtomicUsize)| {
            let start = from.load(Ordering::Acquire);
            (start..to.load(Ordering::Relaxed)).contains(&address)
        };
        CODE.iter().any(within)
    }

    unsafe extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel passes the interrupted context.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let at = registers[libc::REG_RIP as usize] as usize;
        if !is_known(at) {
            // SAFETY: with the default action, the same instruction ends the process when it runs again.
            unsafe { libc::signal(libc::SIGFPE, libc::SIG_DFL) };
            return;
        }
        // SAFETY: the interrupted instruction lies in a scheduler's code, which data follow.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, LONGEST) };
        let instruction = Decoder::with_ip(64, bytes, at as u64, DecoderOptions::NONE).decode();
        if !matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv) {
            // SAFETY: as above.
            unsafe { libc::signal(libc::SIGFPE, libc::SIG_DFL) };
            return;
        }
        registers[libc::REG_RDX as usize] = registers[libc::REG_RAX as usize];
        registers[libc::REG_RAX as usize] = 0;
        registers[libc::REG_RIP as usize] += instruction.len() as i64;
    }
}
