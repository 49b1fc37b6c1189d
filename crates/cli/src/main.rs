//! The steer command.
fn main() {}
