//! Signal dispositions that Rust's runtime changes and a filter wants back.

/// Lets a closed pipe end the process quietly, as it does every C program: `steer ... | head` must not complain.
pub fn default_sigpipe() {
    // SAFETY: SIG_DFL is a valid disposition for SIGPIPE, and no other thread exists yet when main begins.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
