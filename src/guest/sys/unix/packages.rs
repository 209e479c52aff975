//! The programs that know what is installed, and what they print.

use std::{io, process::Stdio, time::Duration};

use tokio::io::AsyncReadExt as _;

use super::first_process::WaitedFor;
use crate::protocol::Package;

/// Most bytes that a list of packages may have: ten times what a full desktop's takes.
const MOST_LISTED: u64 = 16 * 1024 * 1024;

/// Most packages that are told of: more than any distribution has.
const MOST: usize = 200_000;

/// A program that lists what is installed, a line each: name, version, architecture, with tabs between them.
#[derive(Debug)]
struct PackageList {
    /// The program.
    program: &'static str,
    /// Its arguments.
    args: &'static [&'static str],
}

/// In the order in which they are tried; a system of one kind may have the program of the other.
const PACKAGE_LISTS: &[PackageList] = &[
    PackageList {
        program: "dpkg-query",
        args: &["--show", "--showformat", "${binary:Package}\\t${Version}\\t${Architecture}\\t${db:Status-Status}\\n"],
    },
    PackageList {
        program: "rpm",
        args: &["-qa", "--queryformat", "%{NAME}\\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"],
    },
];

impl PackageList {
    /// What it printed; dpkg knows removed packages too, and says so behind the third tab.
    fn parse(text: &[u8]) -> Vec<Package> {
        let package = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let mut fields = line.trim_end_matches('\r').split('\t');
            let (name, version, arch, state) = (fields.next()?, fields.next()?, fields.next(), fields.next());
            if name.is_empty() || state.is_some_and(|state| state != "installed") {
                return None;
            }
            // keys that rpm was given to check signatures by
            let arch = arch.filter(|arch| !arch.is_empty() && *arch != "(none)").map(str::to_owned);
            Some(Package { name: name.to_owned(), version: version.to_owned(), arch })
        };
        let mut packages: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(package).take(MOST).collect();
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        packages
    }
}

/// What the first package list that there is says.
///
/// # Errors
/// When there is none, or it says nothing in time.
pub(in crate::guest) async fn packages(deadline: Duration) -> io::Result<Vec<Package>> {
    for list in PACKAGE_LISTS {
        match tokio::time::timeout(deadline, printed(list)).await {
            Ok(Ok(text)) => return Ok(PackageList::parse(&text)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Err(error)) => return Err(io::Error::other(format!("{}: {error}", list.program))),
            Err(_) => {
                let detail = format!("{} did not end within {:.1} s", list.program, deadline.as_secs_f64());
                return Err(io::Error::new(io::ErrorKind::TimedOut, detail));
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "there is neither dpkg-query nor rpm"))
}

/// What it prints; dropped before its end, it is killed.
async fn printed(list: &PackageList) -> io::Result<Vec<u8>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "no call of anybody's: two programs that only read, without children"
    )]
    let mut command = tokio::process::Command::new(list.program);
    command.args(list.args).env("LC_ALL", "C").current_dir("/").kill_on_drop(true);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let _waited_for = child.id().map(WaitedFor::new);
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MOST_LISTED + 1).read_to_end(&mut text).await?;
    }
    if text.len() as u64 > MOST_LISTED {
        return Err(io::Error::other(format!("it printed more than {MOST_LISTED} bytes")));
    }
    let status = child.wait().await?;
    if status.success() { Ok(text) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_read() {
        let text = b"zlib1g:amd64\t1:1.2.13\tamd64\tinstalled\nold\t1\tall\tconfig-files\nbash\t5.2\tx86_64\n\
            gpg-pubkey\t1-2\t(none)\n\n\tno name\nno version\n\xff\t1\t\n";
        let seen = PackageList::parse(text);
        let seen: Vec<_> = seen
            .iter()
            .map(|package| (package.name.as_str(), package.version.as_str(), package.arch.as_deref()))
            .collect();
        let expected = [
            ("bash", "5.2", Some("x86_64")),
            ("gpg-pubkey", "1-2", None),
            ("zlib1g:amd64", "1:1.2.13", Some("amd64")),
            ("\u{fffd}", "1", None),
        ];
        assert_eq!(seen, expected);
    }
}
