//! How a program ended, in the words of every system.

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Exit {
    /// By itself, or ended by another program that chose the code; on Windows unsigned 32 bit.
    Code(i64),
    /// Killed by this signal, which Windows does not have.
    #[cfg_attr(windows, expect(dead_code, reason = "what ends a program there leaves a code"))]
    Signal(i32),
}
