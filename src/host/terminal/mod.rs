//! This process' own terminal and standard streams: raw mode, size, input, output that may block, signals.
//!
//! What blocks here (a reader that is stopped, a keyboard that nobody touches) blocks threads of its own, never the
//! runtime, and no such thread holds up the process' end.

mod input;
mod modes;
mod output;
mod raw;
mod screen;
mod signals;
mod size;

pub use input::{Input, stdin_has_more, stdin_is_terminal};
pub use modes::Modes;
pub use output::{Output, OutputStream, stdout_closed, stdout_is_terminal};
pub use raw::RawMode;
pub use screen::Screen;
pub use signals::Resumed;
pub use size::{Resizes, Size, size, stdout_width};
