//! What is installed, as the system's own list of programs to be removed has it.

use std::{io, time::Duration};

use super::registry::{Hive, Key};
use crate::protocol::Package;

/// Most packages that are told of.
const MOST: usize = 200_000;

/// Where each program that can be removed has a key.
const LIST: &str = r"SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall";

/// What is installed for all users, and for this one. The registry is in memory, and so the deadline is not needed.
///
/// # Errors
/// When there is no list at all.
#[expect(clippy::unused_async, reason = "the Unix half waits for a program")]
pub(in crate::guest) async fn packages(_deadline: Duration) -> io::Result<Vec<Package>> {
    let lists = [(Hive::Machine, "x86_64"), (Hive::Machine32, "x86"), (Hive::User, "x86_64")];
    let opened: Vec<_> =
        lists.into_iter().filter_map(|(hive, arch)| Some((Key::open(hive, LIST).ok()?, arch))).collect();
    if opened.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the registry has no list of what is installed"));
    }
    let mut packages: Vec<Package> = opened.iter().flat_map(|(list, arch)| of_list(list, arch)).take(MOST).collect();
    packages.sort_by(|a, b| (&a.name, &a.version, &a.arch).cmp(&(&b.name, &b.version, &b.arch)));
    packages.dedup();
    Ok(packages)
}

/// What `Settings` shows too: updates and parts of others are left out.
fn of_list(list: &Key, arch: &str) -> Vec<Package> {
    let package = |key: String| {
        let is_hidden = list.number(&key, "SystemComponent") == Some(1)
            || list.text(&key, "ParentKeyName").is_some()
            || list.text(&key, "ReleaseType").is_some_and(|kind| kind.contains("Update") || kind.contains("Hotfix"));
        let name = list.text(&key, "DisplayName").filter(|_| !is_hidden)?;
        let version = list.text(&key, "DisplayVersion").unwrap_or_default();
        Some(Package { name, version, arch: Some(arch.to_owned()) })
    };
    list.keys().into_iter().filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_a_list() {
        let packages = packages(Duration::ZERO).await.unwrap();
        assert!(packages.iter().all(|package| !package.name.is_empty()), "{packages:?}");
    }
}
