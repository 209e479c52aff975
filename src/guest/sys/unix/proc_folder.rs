//! One process' folder in `/proc`, held open: what is read through it is this process' or nothing.
//!
//! A process' number may belong to another one a moment later; an open folder stays with its own, and once that is gone
//! every look into it fails.

use std::{
    fs::File,
    io::{self, Read as _},
};

use rustix::{
    fd::OwnedFd,
    fs::{CWD, Mode, OFlags, openat},
};

/// The folder.
#[derive(Debug)]
pub(super) struct ProcFolder(OwnedFd);

impl ProcFolder {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())?))
    }

    /// A file's content, at most `most` bytes of it, in the place of what `buffer` holds; where it cannot be read,
    /// `buffer` is empty.
    pub(super) fn read<'a>(&self, name: &str, most: usize, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        buffer.clear();
        let file = File::from(openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
        if let Err(error) = file.take(most as u64).read_to_end(buffer) {
            buffer.clear();
            return Err(error);
        }
        Ok(buffer)
    }

    /// A folder in it.
    pub(super) fn folder(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?)
    }
}

/// The numbers of all processes, in order.
pub(super) fn pids() -> io::Result<Vec<u32>> {
    let entries = fs_err::read_dir("/proc")?;
    let mut pids: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_outlives_its_process_and_then_holds_nothing() {
        #[expect(clippy::disallowed_methods, reason = "a process to be looked at")]
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (folder, mut buffer) = (ProcFolder::open(child.id()).unwrap(), Vec::new());
        assert!(folder.read("stat", 4096, &mut buffer).unwrap().starts_with(child.id().to_string().as_bytes()));
        assert_eq!(folder.read("stat", 3, &mut buffer).unwrap().len(), 3);
        assert!(pids().unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(folder.read("stat", 4096, &mut buffer).is_err());
        assert!(buffer.is_empty());
    }
}
