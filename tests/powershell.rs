//! `shell: pwsh` with a real PowerShell 7: the list of `powershell/list.rs`, which the Windows build runs too, and what
//! is asked of our own PowerShell files.

use std::path::PathBuf;

pub(crate) mod list;
pub(crate) mod shell;
mod syntax;

use self::shell::{PidsOf, Shell};
use crate::support::{Agent, processes};

/// An agent that finds a real `pwsh`; `None`, said aloud, where there is none.
fn agent() -> Option<Agent> {
    let named = std::env::var_os("PODLINK_TEST_PWSH").map(PathBuf::from);
    let path = std::env::var("PATH").unwrap_or_default();
    let found = named.or_else(|| std::env::split_paths(&path).map(|dir| dir.join("pwsh")).find(|file| file.is_file()));
    let Some(found) = found else {
        println!("skipped: no pwsh (set PODLINK_TEST_PWSH to one, or put it on PATH)");
        return None;
    };
    let folder = found.parent().unwrap().to_str().unwrap();
    Some(Agent::launch(&["--exec-slots", "20"], &[("PATH", &format!("{folder}:{path}"))]))
}

fn with_shell(list: impl FnOnce(&Shell)) {
    let Some(agent) = agent() else { return };
    let folder = tempfile::tempdir().unwrap();
    list(&Shell {
        port: agent.port(),
        token: agent.token().to_owned(),
        name: "pwsh",
        windows: false,
        guest_folder: folder.path().to_str().unwrap().to_owned(),
        folder: folder.path().to_owned(),
        pids_of: PidsOf(Box::new(processes::mentioning)),
    });
}

macro_rules! on_linux {
    ($list:ident) => {
        #[test]
        fn $list() {
            with_shell(list::$list);
        }
    };
}
list::every_list!(on_linux);
