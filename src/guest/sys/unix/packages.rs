//! The programs that know what is installed, and what they print.

use crate::protocol::Package;

/// Most packages that are told of: more than any distribution has.
const MOST: usize = 200_000;

/// A program that lists what is installed, a line each: name, version, architecture, with tabs between them.
#[derive(Debug)]
pub(in crate::guest) struct PackageList {
    /// The program.
    pub(in crate::guest) program: &'static str,
    /// Its arguments.
    pub(in crate::guest) args: &'static [&'static str],
}

/// In the order in which they are tried; a system of one kind may have the program of the other.
pub(in crate::guest) const PACKAGE_LISTS: &[PackageList] = &[
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
    pub(in crate::guest) fn parse(text: &[u8]) -> Vec<Package> {
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
