//! The engine inside the kernel.
