//! Files and folders that only their owner may read, behind the same functions for each operating system.
//!
//! What keeps others out is a mode on Unix and an access control list on Windows, and so this is the one place outside
//! [`guest`](crate::guest)'s own that differs by system: the host's side and the agent's both keep the token by it.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as this_system;
#[cfg(windows)]
use windows as this_system;

pub use this_system::{Owners, ensure_private_dir, open_private, others_with_access, replace_private};
#[cfg(windows)]
pub(crate) use this_system::{Privacy, facts, is_elevated, is_on_disk, make_folder, open, own_sid, tighten};
pub(super) use this_system::{create_private, is_its_own};
