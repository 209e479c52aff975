//! How a script gets to its interpreter: what both systems' answers have in common.

/// What runs a script, and how it is given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Interpreter {
    /// A PowerShell of this name, by way of our launcher.
    PowerShell(&'static str),
    /// The Windows command processor, which runs batch files.
    #[cfg_attr(unix, expect(dead_code, reason = "there is none here"))]
    CommandProcessor,
    /// A program of this name, whose first argument is the script's file.
    #[cfg_attr(windows, expect(dead_code, reason = "there is none here"))]
    Plain(&'static str),
}
