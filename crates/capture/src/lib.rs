//! Instrumentation plugin for qemu-user.
