//! The list of `powershell/list.rs` with the Windows build and a real PowerShell, which answers to the name of the one
//! that Windows has.

use std::path::{Path, PathBuf};

use crate::{
    powershell::{
        list,
        shell::{PidsOf, Shell, as_windows_powershell},
    },
    support::{WineAgent, WineSetup, wine::windows_path},
};

/// An agent under Wine that finds a PowerShell as `powershell` and as `pwsh`; `None`, said aloud, where there is none.
pub(super) fn agent() -> Option<WineAgent> {
    let Some(pwsh) = std::env::var_os("PODLINK_TEST_PWSH_EXE").map(PathBuf::from) else {
        println!("skipped: no PowerShell for Windows (set PODLINK_TEST_PWSH_EXE to a pwsh.exe)");
        return None;
    };
    std::env::var_os("PODLINK_TEST_WINE")?; // else the set-up says so
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/wine/powershell");
    as_windows_powershell(&pwsh, &folder);
    WineAgent::with(WineSetup::new().see(&folder).env("WINEPATH", &windows_path(&folder)), &["--exec-slots", "20"])
}

fn with_shell(list: impl FnOnce(&Shell)) {
    let Some(agent) = agent() else { return };
    let folder = agent.wine().folder().join("scripts");
    std::fs::create_dir(&folder).unwrap();
    list(&Shell {
        port: agent.port(),
        token: agent.token().expose().to_string(),
        name: "powershell",
        windows: true,
        guest_folder: windows_path(&folder),
        folder,
        pids_of: PidsOf(Box::new(|text| agent.wine().pids_of(text))),
    });
}

macro_rules! under_wine {
    ($list:ident) => {
        #[test]
        fn $list() {
            with_shell(list::$list);
        }
    };
}
list::every_list!(under_wine);

#[test]
fn the_registry_is_written_and_read_back() {
    with_shell(|shell| {
        let ran = shell.run(
            "$key = 'HKCU:\\Software\\podlink-test'; $null = New-Item $key -Force; \
             Set-ItemProperty $key Text 'ä 漢 🙂'; Set-ItemProperty $key Number 7 -Type DWord; exit 0",
        );
        assert_eq!((ran.rc, ran.stderr.as_str()), (0, ""), "{ran:?}");
        let ran = shell.run(
            "$at = Get-ItemProperty 'HKCU:\\Software\\podlink-test'; $at.Text; $at.Number; \
             Remove-Item 'HKCU:\\Software\\podlink-test'; Test-Path 'HKCU:\\Software\\podlink-test'",
        );
        assert_eq!(ran.stdout, "ä 漢 🙂\n7\nFalse\n", "{ran:?}");
    });
}
