//! What is installed.

use crate::protocol::Package;

/// A program that lists what is installed.
#[derive(Debug)]
pub(in crate::guest) struct PackageList {
    /// The program.
    pub(in crate::guest) program: &'static str,
    /// Its arguments.
    pub(in crate::guest) args: &'static [&'static str],
}

/// In the order in which they are tried.
pub(in crate::guest) const PACKAGE_LISTS: &[PackageList] = &[];

impl PackageList {
    /// What it printed.
    pub(in crate::guest) fn parse(_text: &[u8]) -> Vec<Package> {
        todo!()
    }
}
