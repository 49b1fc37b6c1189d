//! Ends of the process by an error.

pub use countersteer_session::error::{FaultKind, failure, kind_of, paragraph};
use countersteer_session::steering::error::SteeringError;

/// Ends this process with the error's exit code, without a message.
pub fn exit(error: SteeringError) -> ! {
    std::process::exit(i32::from(kind_of(&error.into()) as u8))
}
