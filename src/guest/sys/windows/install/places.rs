//! Where an installation's files lie when nothing else is said.

use std::path::PathBuf;

use crate::token;

/// The executable's name.
pub(in crate::guest) const EXE_NAME: &str = "podlink.exe";

/// A file cannot be replaced for as long as somebody reads it.
pub(in crate::guest) const REPLACING_IS_RETRIED: bool = true;

/// The machine's where this process may write there, the user's own otherwise.
pub(in crate::guest) fn default_state_dir() -> Option<PathBuf> {
    // where the token lies too
    Some(super::super::default_token_file()?.parent()?.to_owned())
}

/// Likewise.
pub(in crate::guest) fn default_program_dir() -> Option<PathBuf> {
    let variable = if token::is_elevated() { "ProgramFiles" } else { "LocalAppData" };
    let folder = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())?;
    Some(folder.join("podlink"))
}

/// A program that Windows brings along, by its whole path: nobody puts another one before it.
pub(super) fn system_program(name: &str) -> String {
    let root = std::env::var("SystemRoot").unwrap_or_else(|_| r"C:\Windows".to_owned());
    format!(r"{root}\System32\{name}")
}
